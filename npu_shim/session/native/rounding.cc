// NpuShimRound: float32 values rounded to a low dtype, as a Cast down and a Cast up give them, in one pass.
//
// Sessions on CPUs run it where the rewriter has written the two Casts (../rounding.py); it rounds to the nearest, ties
// to even. TensorFlow's wheels cast to float16 without the processor's own instruction (F16C), and write the low values
// to memory between the two.

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define NPU_SHIM_F16C 1
#include <immintrin.h>
#endif

namespace npu_shim {

typedef void (*Round)(const float* from, float* to, std::ptrdiff_t count);

const std::ptrdiff_t kShard = 1 << 15;  // values: 20 us or less, what it costs to wake a thread
const int kCyclesPerValue = 2;

void RoundAnywhere(const float* from, float* to, std::ptrdiff_t count) {
  for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<Eigen::half>(from[i]));
}

#ifdef NPU_SHIM_F16C
// The functions are compiled for such processors alone; the rest of the library runs anywhere.
__attribute__((target("avx,f16c"))) void RoundByF16C(const float* from, float* to, std::ptrdiff_t count) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  std::ptrdiff_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_loadu_ps(from + i);
    const __m256 y = _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    // the instruction keeps some bits of a NaN; a Cast keeps its sign only
    const __m256 plain = _mm256_or_ps(nan, _mm256_and_ps(x, sign));
    _mm256_storeu_ps(to + i, _mm256_blendv_ps(y, plain, _mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }
  RoundAnywhere(from + i, to + i, count - i);
}
#endif

Round ToHalf() {
#ifdef NPU_SHIM_F16C
#if defined(__clang__) || __GNUC__ >= 11
  if (__builtin_cpu_supports("avx") && __builtin_cpu_supports("f16c")) return RoundByF16C;
#else
  if (__builtin_cpu_supports("avx2")) return RoundByF16C;  // such a compiler knows no f16c; no processor has avx2 alone
#endif
#endif
  return RoundAnywhere;
}

class RoundOp : public tensorflow::OpKernel {
 public:
  explicit RoundOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    static const Round half = ToHalf();
    round_ = half;
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& input = context->input(0);
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, input.shape(), &output));
    const float* from = input.flat<float>().data();
    float* to = output->flat<float>().data();
    const Round round = round_;
    const std::ptrdiff_t count = input.NumElements();
    if (count <= kShard) {
      round(from, to, count);
    } else {
      context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(
          count, kCyclesPerValue, [=](std::ptrdiff_t begin, std::ptrdiff_t end) {
            round(from + begin, to + begin, end - begin);
          });
    }
  }

 private:
  Round round_;
};

REGISTER_OP("NpuShimRound")
    .Input("x: float")
    .Output("y: float")
    .Attr("to: {half}")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc("Rounds to the values of a low dtype: Cast to it, and Cast to float32.");
REGISTER_KERNEL_BUILDER(Name("NpuShimRound").Device(tensorflow::DEVICE_CPU), RoundOp);

}  // namespace npu_shim
