#include "runtime/cuda/matmul/newton_schulz_steps.h"

#include <cmath>

#include "runtime/base/half.h"
#include "runtime/cuda/for_each.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// parts[block] = the sum of squares of every kNormParts-th run of kThreads floats.
__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(const float* x, int64_t n, double* parts) {
  double sum = 0;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n;
       i += int64_t{kNormParts} * kThreads) {
    const double value = x[i];
    sum += value * value;
  }
  sum = block_reduce<Sum, kThreads>(sum);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// Every block adds up all parts, in the same order.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    divide_kernel(const float* from, int64_t n, double least, const double* parts, T* to) {
  double sum = 0;
  for (int part = threadIdx.x; part < kNormParts; part += kThreads) sum += parts[part];
  const double norm = sqrt(block_reduce<Sum, kThreads>(sum));
  const auto inverse = static_cast<float>(1 / (norm > least ? norm : least));
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step)
    to[i] = round_to<T>(inverse * from[i]);
}

template <typename T>
struct AddUp {
  const float* squares;
  int64_t order;
  float a, b, c;
  T* gram;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    for (int64_t k = i; k < i + Count::value; ++k) {
      const float sum = fmaf(c, squares[k], b * to_float(gram[k]));
      gram[k] = round_to<T>(k % (order + 1) == 0 ? sum + a : sum);  // on the diagonal
    }
  }
};

}  // namespace

template <typename T>
void divide_by_norm(
    const float* from, int64_t n, double least, double* parts, T* to, Stream stream) {
  constexpr int64_t kMaxBlocks = 2048;
  if (n == 0) return;
  launch({kNormParts, kThreads, stream}, sum_squares_kernel, from, n, parts);
  const unsigned blocks = blocks_for(n, kThreads);
  launch({blocks < kMaxBlocks ? blocks : static_cast<unsigned>(kMaxBlocks), kThreads, stream},
         divide_kernel<T>,
         from,
         n,
         least,
         parts,
         to);
}

template <typename T>
void add_up_polynomial(
    const float* squares, int64_t order, float a, float b, float c, T* gram, Stream stream) {
  for_each_flat<1>(order * order, true, AddUp<T>{squares, order, a, b, c, gram}, stream);
}

#define LOCKSTEP_STEPS(T)                                                              \
  template void divide_by_norm<T>(const float*, int64_t, double, double*, T*, Stream); \
  template void add_up_polynomial<T>(const float*, int64_t, float, float, float, T*, Stream)
LOCKSTEP_STEPS(float);
LOCKSTEP_STEPS(BFloat16);
#undef LOCKSTEP_STEPS

}  // namespace lockstep::cuda
