// Ops that sessions on CPUs run in place of several of TensorFlow's, each in one pass over its input.
//
//   NpuShimRound    float32 values rounded to a low dtype, as a Cast down and a Cast up give them (../rounding.py): to the
//                   nearest, ties to even. TensorFlow's wheels cast to float16 without the processor's own instruction
//                   (F16C), and write the low values to memory between the two.
//   NpuShimMeasure  what calibration wants to know of a tensor (../measures.py).

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/core/threadpool.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define NPU_SHIM_X86 1
#include <immintrin.h>
#endif

namespace npu_shim {

typedef void (*Round)(const float* from, float* to, std::ptrdiff_t count);

const std::ptrdiff_t kShard = 1 << 15;  // values: 20 us or less, what it costs to wake a thread
const int kCyclesPerValue = 2;

// Calls `of` with the begin and end of parts of `count` values: of all on this thread if they are few.
template <typename Of>
void InShards(tensorflow::OpKernelContext* context, std::ptrdiff_t count, const Of& of) {
  if (count <= kShard) {
    of(0, count);
  } else {
    context->device()->tensorflow_cpu_worker_threads()->workers->ParallelFor(count, kCyclesPerValue, of);
  }
}

void RoundAnywhere(const float* from, float* to, std::ptrdiff_t count) {
  for (std::ptrdiff_t i = 0; i < count; ++i) to[i] = static_cast<float>(static_cast<Eigen::half>(from[i]));
}

#ifdef NPU_SHIM_X86
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

// To the nearest by integers, which every compiler makes vectors of; a NaN keeps its sign only.
void RoundToBfloat16(const float* from, float* to, std::ptrdiff_t count) {
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const std::uint32_t nearest = (bits + 0x7fff + ((bits >> 16) & 1)) & 0xffff0000;
    const std::uint32_t plain = (bits & 0x80000000) | 0x7fc00000;
    bits = (bits & 0x7fffffff) > 0x7f800000 ? plain : nearest;
    std::memcpy(to + i, &bits, sizeof bits);
  }
}

Round ToHalf() {
#ifdef NPU_SHIM_X86
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
    tensorflow::DataType to;
    OP_REQUIRES_OK(context, context->GetAttr("to", &to));
    round_ = to == tensorflow::DT_HALF ? half : RoundToBfloat16;
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& input = context->input(0);
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->forward_input_or_allocate_output({0}, 0, input.shape(), &output));
    const float* from = input.flat<float>().data();
    float* to = output->flat<float>().data();
    const Round round = round_;
    InShards(context, input.NumElements(), [=](std::ptrdiff_t begin, std::ptrdiff_t end) {
      round(from + begin, to + begin, end - begin);
    });
  }

 private:
  Round round_;
};

REGISTER_OP("NpuShimRound")
    .Input("x: float")
    .Output("y: float")
    .Attr("to: {half, bfloat16}")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape)
    .Doc("Rounds to the values of a low dtype: Cast to it, and Cast to float32.");
REGISTER_KERNEL_BUILDER(Name("NpuShimRound").Device(tensorflow::DEVICE_CPU), RoundOp);

// Magnitudes of float32 values as integers: their bits without the sign, which are in the order of the values.
const std::int32_t kMagnitude = 0x7fffffff;
const std::int32_t kNormal = 0x00800000;      // the smallest with all its bits
const std::int32_t kInfinity = 0x7f800000;    // what is above it is not a number
const std::int32_t kInfinite = 0x477ff000;    // 65520, which float16 rounds to infinity
const std::int32_t kZeroUpTo = 0x33000000;    // 2^-25, which float16 rounds to zero

struct Measures {
  std::int32_t largest;   // finite
  std::int32_t smallest;  // not zero
  std::int64_t beyond, below, nonfinite;

  void Add(const Measures& other) {
    largest = std::max(largest, other.largest);
    smallest = std::min(smallest, other.smallest);
    beyond += other.beyond;
    below += other.below;
    nonfinite += other.nonfinite;
  }
};

#ifdef NPU_SHIM_X86
#define NPU_SHIM_INLINE inline __attribute__((always_inline))
#else
#define NPU_SHIM_INLINE inline
#endif

NPU_SHIM_INLINE Measures MeasuresOf(const float* from, std::ptrdiff_t count) {  // no loop that compilers do not vectorize
  std::int32_t largest = 0, smallest = kInfinity, beyond = 0, below = 0, nonfinite = 0;
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    std::int32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    bits &= kMagnitude;
    const std::int32_t finite = bits < kInfinity ? bits : 0;
    const std::int32_t positive = bits > 0 ? bits : kInfinity;
    largest = finite > largest ? finite : largest;
    smallest = positive < smallest ? positive : smallest;
    beyond += (bits >= kInfinite) & (bits <= kInfinity);
    below += (bits > 0) & (bits <= kZeroUpTo);
    nonfinite += bits >= kInfinity;
  }
  return {largest, smallest, beyond, below, nonfinite};
}

typedef Measures (*Measure)(const float* from, std::ptrdiff_t count);

Measures MeasureAnywhere(const float* from, std::ptrdiff_t count) { return MeasuresOf(from, count); }

#ifdef NPU_SHIM_X86
__attribute__((target("avx2"))) Measures MeasureByAVX2(const float* from, std::ptrdiff_t count) {
  return MeasuresOf(from, count);
}
#endif

Measure Measuring() {
#ifdef NPU_SHIM_X86
  if (__builtin_cpu_supports("avx2")) return MeasureByAVX2;
#endif
  return MeasureAnywhere;
}

double Value(std::int32_t bits) {
  if (bits < kNormal) return std::ldexp(bits, -149);  // kernels run with such numbers taken for zero
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

class MeasureOp : public tensorflow::OpKernel {
 public:
  explicit MeasureOp(tensorflow::OpKernelConstruction* context) : OpKernel(context) {
    static const Measure here = Measuring();
    measure_ = here;
  }

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& input = context->input(0);
    tensorflow::Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tensorflow::TensorShape({6}), &output));
    const float* from = input.flat<float>().data();
    const std::ptrdiff_t count = input.NumElements();
    const Measure measure = measure_;
    Measures all = {0, kInfinity, 0, 0, 0};
    std::mutex lock;
    InShards(context, count, [&](std::ptrdiff_t begin, std::ptrdiff_t end) {
      for (; begin < end; begin += kShard) {  // so that counts of 32 bits do
        const Measures some = measure(from + begin, std::min(kShard, end - begin));
        std::lock_guard<std::mutex> held(lock);
        all.Add(some);
      }
    });
    auto found = output->flat<double>();
    found(0) = Value(all.largest);
    found(1) = Value(all.smallest);
    found(2) = count;
    found(3) = all.beyond;
    found(4) = all.below;
    found(5) = all.nonfinite;
  }

 private:
  Measure measure_;
};

REGISTER_OP("NpuShimMeasure")
    .Input("x: float")
    .Output("measures: double")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc("Largest finite and smallest positive magnitude; values; how many of them float16 makes infinite, makes zero; "
         "how many are not finite.");
REGISTER_KERNEL_BUILDER(Name("NpuShimMeasure").Device(tensorflow::DEVICE_CPU), MeasureOp);

}  // namespace npu_shim
