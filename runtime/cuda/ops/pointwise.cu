// A thread interprets the program for N consecutive elements. Registers are in its local memory.
// The program is a kernel argument, so a whole warp executes the same step.
#include "runtime/graph/ops/pointwise.h"

#include <limits>
#include <utility>

#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/graph/pointwise_values.h"

namespace lockstep::cuda {
namespace {

constexpr int kVector = 4;
constexpr int kInputs = graph::PointwiseCode::kMaxInputs;
constexpr int kValues = kInputs + graph::PointwiseCode::kMaxRegisters;

struct Arguments {
  graph::PointwiseCode code;
  graph::PointwiseLoops loops;
  int64_t n;
  const void* inputs[kInputs];
  DType input_types[kInputs];
  void* y;
  DType y_type;
};

// N elements from element `at` on (if `run`), or that element N times.
template <int N, typename T>
__device__ __forceinline__ void load_input(const void* from, int64_t at, bool run, float (&to)[N]) {
  const T* const elements = static_cast<const T*>(from) + at;
  if constexpr (N > 1) {
    if (run) return load(elements, to);
  }
  const float value = to_float(*elements);
#pragma unroll
  for (int k = 0; k < N; ++k) to[k] = value;
}

template <int N>
__device__ __forceinline__ void load_input(
    DType type, const void* from, int64_t at, bool run, float (&to)[N]) {
  switch (type) {
    case DType::kBF16: return load_input<N, BFloat16>(from, at, run, to);
    case DType::kF16: return load_input<N, Float16>(from, at, run, to);
    case DType::kI32:
#pragma unroll
      for (int k = 0; k < N; ++k)
        to[k] = static_cast<float>(static_cast<const int32_t*>(from)[at + (run ? k : 0)]);
      return;
    default: return load_input<N, float>(from, at, run, to);
  }
}

template <int N>
__device__ __forceinline__ void store_result(DType type,
                                             const float (&from)[N],
                                             void* to,
                                             int64_t at) {
  switch (type) {
    case DType::kBF16: return store(from, static_cast<BFloat16*>(to) + at);
    case DType::kF16: return store(from, static_cast<Float16*>(to) + at);
    case DType::kI32:
#pragma unroll
      for (int k = 0; k < N; ++k) static_cast<int32_t*>(to)[at + k] = graph::to_int32(from[k]);
      return;
    default: return store(from, static_cast<float*>(to) + at);
  }
}

constexpr auto kFirstFunction = static_cast<size_t>(graph::PointwiseFunction::kIdentity);
using Functions = std::make_index_sequence<static_cast<size_t>(graph::PointwiseFunction::kCount) -
                                           kFirstFunction>;

// Calls f with the function, one with operands, as a compile-time constant.
template <typename F, size_t... I>
__device__ __forceinline__ void with_function(graph::PointwiseFunction function,
                                              F f,
                                              std::index_sequence<I...>) {
  const auto call = [&](auto constant) {
    if (function != constant()) return false;
    f(constant);
    return true;
  };
  (call(std::integral_constant<graph::PointwiseFunction,
                               static_cast<graph::PointwiseFunction>(kFirstFunction + I)>()) ||
   ...);
}

// Index: the integer type of element indices, 32 bits if sufficient, because 64-bit division is
// slow. The minimum of one block per multiprocessor keeps the compiler from spilling registers to
// fit a few more blocks.
template <int N, typename Index>
__global__ void __launch_bounds__(kFlatThreads, 1) pointwise_kernel(Arguments of) {
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kFlatThreads + threadIdx.x) * N;
  if (first >= of.n) return;
  const int inner = of.loops.rank - 1;

  Index rest = static_cast<Index>(first);
  int64_t offsets[kInputs] = {};
  for (int d = inner; d >= 0; --d) {
    const Index outer = d == 0 ? 0 : rest / static_cast<Index>(of.loops.extents[d]);
    const auto step = static_cast<int64_t>(rest - outer * static_cast<Index>(of.loops.extents[d]));
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      if (k < of.code.inputs) offsets[k] += step * of.loops.strides[k][d];
    }
    rest = outer;
  }

  float values[kValues][N];
#pragma unroll
  for (int k = 0; k < kInputs; ++k) {
    if (k < of.code.inputs)
      load_input(
          of.input_types[k], of.inputs[k], offsets[k], of.loops.strides[k][inner] == 1, values[k]);
  }
  const auto value = [&](uint8_t number, int k) {
    return number < graph::PointwiseCode::kFirstConstant
               ? values[number][k]
               : of.code.constant[number - graph::PointwiseCode::kFirstConstant];
  };
  for (int s = 0; s < of.code.steps; ++s) {
    const graph::PointwiseStep step = of.code.step[s];
    const auto apply = [&](auto function) {
#pragma unroll
      for (int k = 0; k < N; ++k)
        values[step.to][k] = graph::pointwise_value<float>(
            function(), value(step.a, k), value(step.b, k), value(step.c, k));
    };
    with_function(step.function, apply, Functions());
  }
  store_result(of.y_type, values[of.code.step[of.code.steps - 1].to], of.y, first);
}

// Whether each thread can read kVector elements of a row at once.
bool takes_vectors(const Arguments& of) {
  const int inner = of.loops.rank - 1;
  bool aligned = of.loops.extents[inner] % kVector == 0 && is_aligned(of.y);
  for (int k = 0; k < of.code.inputs; ++k)
    aligned &= of.loops.strides[k][inner] == 0 || is_aligned(of.inputs[k]);
  return aligned;
}

template <int N>
void start(const Arguments& of, Stream stream) {
  const Launch config = {blocks_for(of.n, kFlatThreads * N), kFlatThreads, stream};
  if (of.n < std::numeric_limits<int32_t>::max()) {
    launch(config, pointwise_kernel<N, uint32_t>, of);
  } else {
    launch(config, pointwise_kernel<N, int64_t>, of);
  }
}

void run(const graph::OpCall& call) {
  const graph::PointwiseForward<float> op{call};
  if (op.n == 0) return;
  Arguments of{.code = *op.code,
               .loops = op.loops,
               .n = op.n,
               .inputs = {},
               .input_types = {},
               .y = op.y,
               .y_type = op.y_type};
  for (int k = 0; k < of.code.inputs; ++k) {
    of.inputs[k] = op.inputs[k];
    of.input_types[k] = op.input_types[k];
  }
  if (takes_vectors(of)) {
    start<kVector>(of, stream_of(call));
  } else {
    start<1>(of, stream_of(call));
  }
}

constexpr exec::Implementation kRows[] = {exec::row<run>(graph::OpKind::kPointwise, "native")};

}  // namespace

constinit const exec::Implementations kCudaPointwise = kRows;

}  // namespace lockstep::cuda
