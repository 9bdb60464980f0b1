#include "runtime/cuda/elementwise.h"

#include "runtime/base/check.h"
#include "runtime/cuda/flat.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct Add {
  const T *a, *b;
  T* out;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    constexpr int N = Count::value;
    float x[N], y[N];
    load(a + i, x);
    load(b + i, y);
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] += y[k];
    store(x, out + i);
  }
};

template <typename T>
struct Cast {
  const float* from;
  T* to;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    float x[Count::value];
    load(from + i, x);
    store(x, to + i);
  }
};

template <typename T>
struct Widen {
  const T* from;
  bool accumulate;
  float* to;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    float x[Count::value], sum[Count::value] = {};
    load(from + i, x);
    if (accumulate) load(to + i, sum);
#pragma unroll
    for (int k = 0; k < Count::value; ++k) sum[k] += x[k];
    store(sum, to + i);
  }
};

constexpr int kSquaresThreads = 256;

// Each block sums kSquaresBlock elements; a square of two floats is exact in double.
template <int N>
__global__ void __launch_bounds__(kSquaresThreads)
    sums_of_squares_kernel(const float* slices, int64_t n, double* partials) {
  const float* const x = slices + blockIdx.y * n;
  const int64_t begin = blockIdx.x * kSquaresBlock;
  const int64_t end = begin + kSquaresBlock < n ? begin + kSquaresBlock : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x * 4; i < end; i += kSquaresThreads * 4) {
    float values[4] = {};
    if (N == 4 && i + 4 <= end) {
      load(x + i, values);
    } else {
      for (int k = 0; k < 4 && i + k < end; ++k) values[k] = x[i + k];
    }
    for (int k = 0; k < 4; ++k) sum += static_cast<double>(values[k]) * values[k];
  }
  sum = block_reduce<Sum, kSquaresThreads>(sum);
  if (threadIdx.x == 0) partials[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSquaresThreads)
    sum_doubles_kernel(const double* partials, int64_t count, double* out) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kSquaresThreads)
    sum += partials[blockIdx.x * count + i];
  sum = block_reduce<Sum, kSquaresThreads>(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

}  // namespace

template <typename T>
void add(const T* a, const T* b, T* out, int64_t n, Stream stream) {
  const bool vectors = is_aligned(a) && is_aligned(b) && is_aligned(out);
  for_each_flat<kVectorWidth<T>>(n, vectors, Add<T>{a, b, out}, stream);
}

template <typename T>
void cast(const float* from, T* to, int64_t n, Stream stream) {
  for_each_flat<4>(n, is_aligned(from) && is_aligned(to), Cast<T>{from, to}, stream);
}

template <typename T>
void widen(const T* from, bool accumulate, float* to, int64_t n, Stream stream) {
  for_each_flat<4>(n, is_aligned(from) && is_aligned(to), Widen<T>{from, accumulate, to}, stream);
}

void sums_of_squares(
    const float* x, int64_t n, int count, double* workspace, double* out, Stream stream) {
  const unsigned blocks = blocks_for(n, kSquaresBlock), slices = static_cast<unsigned>(count);
  const Launch how{{blocks, slices, 1}, {kSquaresThreads, 1, 1}, stream};
  if (is_aligned(x) && n % 4 == 0) {
    launch(how, sums_of_squares_kernel<4>, x, n, workspace);
  } else {
    launch(how, sums_of_squares_kernel<1>, x, n, workspace);
  }
  launch({{slices, 1, 1}, {kSquaresThreads, 1, 1}, stream},
         sum_doubles_kernel,
         workspace,
         blocks,
         out);
}

size_t sums_of_squares_workspace_bytes(int64_t n, int count) {
  return blocks_for(n, kSquaresBlock) * static_cast<size_t>(count) * sizeof(double);
}

template void add(const float*, const float*, float*, int64_t, Stream);
template void add(const BFloat16*, const BFloat16*, BFloat16*, int64_t, Stream);
template void add(const Float16*, const Float16*, Float16*, int64_t, Stream);
template void cast(const float*, BFloat16*, int64_t, Stream);
template void cast(const float*, Float16*, int64_t, Stream);
template void widen(const float*, bool, float*, int64_t, Stream);
template void widen(const BFloat16*, bool, float*, int64_t, Stream);
template void widen(const Float16*, bool, float*, int64_t, Stream);

}  // namespace lockstep::cuda
