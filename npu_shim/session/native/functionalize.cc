// TensorFlow's own conversion of v1 control flow (Switch, Merge, Enter, ...) to functional While and If, for Python.
//
// The conversion is exported by libtensorflow_cc.so.2 (TensorFlow 2.x), its header needs XLA's, so it is declared here.

#include <functional>
#include <string>

#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/graph/graph.h"

namespace tensorflow {
Status FunctionalizeControlFlowForGraphDef(GraphDef* graph, FunctionLibraryDefinition* library,
                                           const std::function<bool(const Node*)>& filter, bool include_functions);
}

// Answers with a GraphDef's bytes and returns 0, or answers with a message and returns a status code.
extern "C" int npu_shim_functionalize(const char* bytes, size_t size, void (*answer)(const char*, size_t)) {
  tensorflow::GraphDef graph;
  std::string text = "not a GraphDef";
  if (!graph.ParseFromArray(bytes, size)) {
    answer(text.data(), text.size());
    return 13;  // INTERNAL
  }
  tensorflow::FunctionLibraryDefinition library(tensorflow::OpRegistry::Global(), graph.library());
  const auto status = tensorflow::FunctionalizeControlFlowForGraphDef(&graph, &library, {}, true);
  if (status.ok()) {
    *graph.mutable_library() = library.ToProto();
    graph.SerializeToString(&text);
  } else {
    text = std::string(status.message());
  }
  answer(text.data(), text.size());
  return static_cast<int>(status.code());
}
