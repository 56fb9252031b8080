// NpuShimArrive: passes a tensor on, and notes that it has come.
//
// It stands before each collective of a session's graph (../arrivals.py), and tells how far a run is: a collective that
// waits for other ranks looks the same from outside as one whose own input never comes.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace npu_shim {

#if NPU_SHIM_TF < 200
typedef tensorflow::int64 Key;
#else
typedef int64_t Key;
#endif

struct Arrival {
  long long count = 0;
  std::chrono::steady_clock::time_point last;
};

std::mutex arrivals_mutex;
// by the collective's instance key; it is never destroyed, since a run may outlive the program's end
std::map<Key, Arrival>& arrivals = *new std::map<Key, Arrival>;

class ArriveOp : public tensorflow::OpKernel {
 public:
  explicit ArriveOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("key", &key_));
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    {
      std::lock_guard<std::mutex> lock(arrivals_mutex);
      Arrival& arrival = arrivals[key_];
      ++arrival.count;
      arrival.last = std::chrono::steady_clock::now();
    }
    context->set_output(0, context->input(0));
  }

 private:
  Key key_;
};

REGISTER_OP("NpuShimArrive")
    .Input("x: T")
    .Output("y: T")
    .Attr("T: type")
    .Attr("key: int")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc("Passes a tensor on, and notes that it has come.");
REGISTER_KERNEL_BUILDER(Name("NpuShimArrive").Device(tensorflow::DEVICE_CPU), ArriveOp);
REGISTER_KERNEL_BUILDER(Name("NpuShimArrive").Device(tensorflow::DEVICE_GPU), ArriveOp);

}  // namespace npu_shim

extern "C" {
// Writes a line "key count seconds" for each key that has come, as much as fits; returns the size of all of it.
size_t npu_shim_arrivals(char* text, size_t size) {
  std::ostringstream lines;
  const auto now = std::chrono::steady_clock::now();
  {
    std::lock_guard<std::mutex> lock(npu_shim::arrivals_mutex);
    for (const auto& each : npu_shim::arrivals) {
      const std::chrono::duration<double> ago = now - each.second.last;
      lines << each.first << ' ' << each.second.count << ' ' << ago.count() << '\n';
    }
  }
  const std::string all = lines.str();
  std::memcpy(text, all.data(), std::min(size, all.size()));
  return all.size();
}
}
