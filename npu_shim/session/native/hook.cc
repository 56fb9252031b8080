// The hook through which TensorFlow sessions reach the rewriter; it holds no policy.
//
//   NpuOptimizer   a Grappler custom optimizer: hands the graph, the optimizer's own options and the graph's interface to a
//                  callback (Python, set through npu_shim_set_callbacks) and takes a graph or an error back.
//   ReportError    a graph pass behind it: Grappler swallows errors and runs the original graph, so an error travels as a
//                  node attribute and is returned here, where it becomes the session's error. So does a graph whose
//                  config names NpuOptimizer and that Grappler never handed over, or dropped afterwards because an optimizer
//                  of TensorFlow's own had broken it; the callback that is asked about it may switch such a one off.
//   DissolveIslands  a graph pass behind XLA's clustering: of what the rewriter has marked, clusters of a few ops are none.
//   CountClusters  a last graph pass: tells how many XLA clusters and functions a session with NpuOptimizer will compile.
//
// The passes belong to the process, and see graphs of sessions that never asked for NpuOptimizer too: those stay as they are.
//
// Built against TensorFlow 1.15.5 (C++11), 2.15.1 and 2.21.0 (C++17); see build.py for the flags.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/grappler/grappler_item.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer.h"
#include "tensorflow/core/grappler/optimizers/custom_graph_optimizer_registry.h"
#include "tensorflow/core/protobuf/config.pb.h"
#include "tensorflow/core/protobuf/rewriter_config.pb.h"
#include "tensorflow/core/public/session_options.h"

#ifndef NPU_SHIM_TF
#error "build.py defines NPU_SHIM_TF as 100 * major + minor: the headers have named them differently over time"
#endif

namespace npu_shim {

using tensorflow::Status;

const char kName[] = "NpuOptimizer";
const char kMainGraph[] = "tf_graph";  // Grappler's name for a session's own graph
const char kError[] = "_npu_shim_error";  // "<numeric code>\n<message>", on every node of a graph that must fail
const char kSeen[] = "_npu_shim_seen";    // on every node of a graph that the rewriter has answered for
const char kMarked[] = "_npu_shim_cluster";  // on every node that the rewriter has asked XLA to compile

#if NPU_SHIM_TF < 200
Status Ok() { return Status::OK(); }
Status Error(int code, const std::string& message) {
  return Status(static_cast<tensorflow::error::Code>(code), message);
}
#else
Status Ok() { return Status(); }
Status Error(int code, const std::string& message) {
  return Status(static_cast<absl::StatusCode>(code), message);
}
#endif

// What a callback answers through npu_shim_return, npu_shim_unchanged or npu_shim_fail. None called is an error: the
// callback was cut short.
struct Answer {
  bool has_graph = false;
  std::string graph;
  int code = 13;  // INTERNAL
  std::string message = "npu_shim: the rewriter was cut short and gave no answer";
  std::vector<std::pair<std::string, int>> switches;  // fields of the session's RewriterConfig -> their new values
};

// Names are joined by newlines, which no TensorFlow name can hold.
typedef void (*Rewrite)(Answer* answer, const char* graph, size_t graph_size, const char* config, size_t config_size,
                        const char* item, const char* feeds, const char* fetches, const char* preserved);
// Asked about a graph that never reached the rewriter; `config` is the session's ConfigProto.
typedef void (*Missed)(Answer* answer, const char* config, size_t config_size);
typedef void (*Clusters)(int count);
Rewrite rewrite = nullptr;
Missed missed = nullptr;
Clusters clusters = nullptr;
int minimum = 0;

// Sets the switch of one of TensorFlow's own optimizers. Each is a number, so a graph of the same session that another
// thread optimizes meanwhile sees the old value or the new one.
void Switch(const std::string& field, int value, tensorflow::RewriterConfig* rewriter) {
  const auto toggle = static_cast<tensorflow::RewriterConfig_Toggle>(value);
#define NPU_SHIM_SWITCH(name) \
  if (field == #name) rewriter->set_##name(toggle)
  NPU_SHIM_SWITCH(arithmetic_optimization);
  NPU_SHIM_SWITCH(constant_folding);
#if NPU_SHIM_TF >= 200
  NPU_SHIM_SWITCH(common_subgraph_elimination);
  if (field == "disable_tfg_optimizer") rewriter->set_disable_tfg_optimizer(value != 0);
#endif
  NPU_SHIM_SWITCH(dependency_optimization);
  NPU_SHIM_SWITCH(function_optimization);
  NPU_SHIM_SWITCH(implementation_selector);
  NPU_SHIM_SWITCH(layout_optimizer);
  NPU_SHIM_SWITCH(loop_optimization);
  NPU_SHIM_SWITCH(pin_to_host_optimization);
  NPU_SHIM_SWITCH(remapping);
  NPU_SHIM_SWITCH(scoped_allocator_optimization);
  NPU_SHIM_SWITCH(shape_optimization);
#undef NPU_SHIM_SWITCH
  if (field == "memory_optimization") {
    rewriter->set_memory_optimization(static_cast<tensorflow::RewriterConfig_MemOptType>(value));
  }
}

void Mark(const char* key, const std::string& value, tensorflow::GraphDef* graph) {
  for (auto& node : *graph->mutable_node()) (*node.mutable_attr())[key].set_s(value);
}

// Whether a graph has a node that TensorFlow did not put there itself to carry what is fed and fetched.
bool HasWork(const tensorflow::Graph& graph) {
  for (const tensorflow::Node* node : graph.op_nodes()) {
    if (!node->IsArg() && !node->IsRetval() && !node->IsSend() && !node->IsRecv()) return true;
  }
  return false;
}

// Whether it is the body of a function that is got ready to run, with the config of the session that calls it.
bool IsFunction(const tensorflow::GraphOptimizationPassOptions& options) {
#if NPU_SHIM_TF < 200
  // a session names what carries its feeds and fetches _arg_... and _retval_...
  for (const tensorflow::Node* node : (*options.graph)->op_nodes()) {
    if ((node->IsArg() || node->IsRetval()) && node->name().find("_arg_") != 0 && node->name().find("_retval_") != 0) {
      return true;
    }
  }
  return false;
#else
  return options.is_function_graph;
#endif
}

bool NamesOptimizer(const tensorflow::ConfigProto& config) {
  for (const auto& entry : config.graph_options().rewrite_options().custom_optimizers()) {
    if (entry.name() == kName) return true;
  }
  return false;
}

class NpuOptimizer : public tensorflow::grappler::CustomGraphOptimizer {
 public:
  Status Init(const tensorflow::RewriterConfig_CustomGraphOptimizer* config) override {
    if (config != nullptr) config->SerializeToString(&config_);
    return Ok();
  }
  std::string name() const override { return kName; }
  // without this, Grappler hides the function bodies from us
  bool UsesFunctionLibrary() const override { return true; }
#if NPU_SHIM_TF < 200
  void Feedback(tensorflow::grappler::Cluster*, const tensorflow::grappler::GrapplerItem&,
                const tensorflow::GraphDef&, double) override {}
#endif

  Status Optimize(tensorflow::grappler::Cluster*, const tensorflow::grappler::GrapplerItem& item,
                  tensorflow::GraphDef* optimized) override {
    Answer answer;
    std::string feeds, fetches, preserved;
    for (const auto& feed : item.feed) feeds += feed.first + "\n";
    for (const auto& fetch : item.fetch) fetches += fetch + "\n";
    for (const auto& node : item.NodesToPreserve()) preserved += node + "\n";
    if (rewrite == nullptr) {
      answer.code = 9;  // FAILED_PRECONDITION
      answer.message = "npu_shim: the rewriter is not connected to its hook";
    } else {
      const std::string graph = item.graph.SerializeAsString();
      rewrite(&answer, graph.data(), graph.size(), config_.data(), config_.size(), item.id.c_str(), feeds.c_str(),
              fetches.c_str(), preserved.c_str());
    }
    if (answer.has_graph && !optimized->ParseFromString(answer.graph)) {
      answer.code = 13;  // INTERNAL
      answer.message = "npu_shim: the rewriter returned bytes that are no GraphDef";
    }
    if (answer.code != 0 || !answer.has_graph) *optimized = item.graph;
    if (item.id == kMainGraph) Mark(kSeen, "", optimized);  // other items are the bodies of its functions
    if (answer.code != 0) Mark(kError, std::to_string(answer.code) + "\n" + answer.message, optimized);
    return Ok();
  }

 private:
  std::string config_;
};

class ReportError : public tensorflow::GraphOptimizationPass {
 public:
  Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr) return Ok();
    bool seen = false;
    for (tensorflow::Node* node : (*options.graph)->op_nodes()) {
      const auto* error = node->attrs().Find(kError);
      if (error != nullptr) {
        const size_t end = error->s().find('\n');
        return Error(std::stoi(error->s().substr(0, end)), error->s().substr(end + 1));
      }
      if (node->attrs().Find(kSeen) == nullptr) continue;
      seen = true;
      node->ClearAttr(kSeen);
    }
    return seen ? Ok() : ReportMissed(options);
  }

 private:
  Status ReportMissed(const tensorflow::GraphOptimizationPassOptions& options) {
    if (missed == nullptr || options.session_options == nullptr || IsFunction(options)) return Ok();
    const tensorflow::ConfigProto& config = options.session_options->config;
    if (!NamesOptimizer(config) || !HasWork(**options.graph)) return Ok();
    Answer answer;
    const std::string bytes = config.SerializeAsString();
    missed(&answer, bytes.data(), bytes.size());
    // the session's own: its next graph is optimized by what stands there then
    auto* rewriter = const_cast<tensorflow::RewriterConfig*>(&config.graph_options().rewrite_options());
    for (const auto& change : answer.switches) Switch(change.first, change.second, rewriter);
    return answer.code == 0 ? Ok() : Error(answer.code, answer.message);
  }
};

// Takes clusters of fewer ops than `minimum` apart again, where the rewriter has marked their nodes: their launch costs
// more than they save, and TensorFlow's own minimum does not hold for nodes that are marked.
class DissolveIslands : public tensorflow::GraphOptimizationPass {
 public:
  Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr) return Ok();
    std::map<std::string, int> sizes;
    std::set<std::string> marked;
    for (const tensorflow::Node* node : (*options.graph)->op_nodes()) {
      const auto* cluster = node->attrs().Find("_XlaCluster");
      if (cluster == nullptr) continue;
      if (node->attrs().Find(kMarked) != nullptr) marked.insert(cluster->s());
      const std::string& op = node->type_string();
      sizes[cluster->s()] += op != "Const" && op != "Identity" && op != "NoOp" && op != "Shape";
    }
    for (tensorflow::Node* node : (*options.graph)->op_nodes()) {
      const auto* cluster = node->attrs().Find("_XlaCluster");
      if (cluster == nullptr || marked.count(cluster->s()) == 0) continue;
      if (sizes[cluster->s()] < minimum) node->ClearAttr("_XlaCluster");
    }
    return Ok();
  }
};

class CountClusters : public tensorflow::GraphOptimizationPass {
 public:
  Status Run(const tensorflow::GraphOptimizationPassOptions& options) override {
    if (options.graph == nullptr || clusters == nullptr || options.session_options == nullptr) return Ok();
    if (!NamesOptimizer(options.session_options->config)) return Ok();
    int count = 0;
    for (const tensorflow::Node* node : (*options.graph)->op_nodes()) {
      const auto* compiled = node->attrs().Find("_XlaMustCompile");  // on the call of a function
      count += node->type_string() == "_XlaCompile" || node->type_string() == "XlaLaunch" ||
               (compiled != nullptr && compiled->b());
    }
    if (count > 0) clusters(count);
    return Ok();
  }
};

REGISTER_GRAPH_OPTIMIZER_AS(NpuOptimizer, "NpuOptimizer");
// before XLA's own passes of this group (phase 5 and up), which must not see a graph that has to fail
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 0, ReportError);
// between XLA's passes that form clusters (up to phase 40) and those that make functions of them (from 50)
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 45, DissolveIslands);
// behind XLA's last pass of this group
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_REWRITE_FOR_EXEC, 1000, CountClusters);

}  // namespace npu_shim

extern "C" {
void npu_shim_set_callbacks(npu_shim::Rewrite rewrite, npu_shim::Missed missed, npu_shim::Clusters clusters,
                            int minimum) {
  npu_shim::rewrite = rewrite;
  npu_shim::missed = missed;
  npu_shim::clusters = clusters;
  npu_shim::minimum = minimum;
}
void npu_shim_return(npu_shim::Answer* answer, const char* graph, size_t size) {
  answer->has_graph = true;
  answer->graph.assign(graph, size);
  answer->code = 0;
}
void npu_shim_unchanged(npu_shim::Answer* answer) { answer->code = 0; }
void npu_shim_switch(npu_shim::Answer* answer, const char* field, int value) {
  answer->switches.emplace_back(field, value);
}
void npu_shim_fail(npu_shim::Answer* answer, int code, const char* message) {
  answer->code = code;
  answer->message = message;
}
}
