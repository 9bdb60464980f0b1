// Slices are copied by one thread for each word of y. A word has as many elements as divide all
// slices evenly, up to 16 bytes. Gradients: indices are sorted, and one thread per column adds the
// slices of d_y with the same index, in their order.
#include "runtime/graph/ops/gather.h"

#include "runtime/base/dtype.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/fast_division.h"
#include "runtime/cuda/flat_copies.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/token_sort.h"
#include "runtime/cuda/plan/indexing.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;

// The coordinates of an element of y, (outer, count, inner), from its index.
template <typename Divisor>
struct Indexer {
  Divisor count, inner;
  struct Coordinates {
    int64_t outer, index, column;
  };
  __device__ __forceinline__ Coordinates of(int64_t i) const {
    const auto number = static_cast<typename Divisor::Index>(i);
    const auto row = inner.divide(number);
    const auto outer = count.divide(row);
    return {static_cast<int64_t>(outer),
            static_cast<int64_t>(row - outer * count.divisor),
            static_cast<int64_t>(number - row * inner.divisor)};
  }
};

// Elements: each element of y has its index; otherwise each slice.
template <typename Word, typename Divisor, bool Elements>
struct Copy {
  Indexer<Divisor> indexer;
  int64_t extent, inner;
  const Word* x;
  const int32_t* indices;
  Word* y;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const auto at = indexer.of(i);
    const int32_t index = indices[Elements ? i : at.index];
    y[i] = x[(at.outer * extent + graph::gathered_index(index, extent)) * inner + at.column];
  }
};

// Copies words of `width` elements.
template <bool Elements, typename Word>
void copy(const graph::GatherForward<std::byte>& op, int64_t width, Stream stream) {
  const graph::GatherSizes& sizes = op.sizes;
  const int64_t inner = sizes.inner / width, n = sizes.outer * sizes.count * inner;
  if (n == 0) return;
  with_divisor(n, [&](auto divisor) {
    using Divisor = decltype(divisor);
    for_each_flat<1>(n,
                     false,
                     Copy<Word, Divisor, Elements>{{Divisor(sizes.count), Divisor(inner)},
                                                   sizes.extent,
                                                   inner,
                                                   reinterpret_cast<const Word*>(op.x),
                                                   op.indices,
                                                   reinterpret_cast<Word*>(op.y)},
                     stream);
  });
}

// T is an unsigned type of the size of an element.
template <typename T>
void copy_slices(const graph::GatherForward<std::byte>& op, Stream stream) {
  constexpr int kWidth = kVectorWidth<T>;
  if (op.sizes.inner % kWidth == 0 && is_aligned(op.x) && is_aligned(op.y))
    return copy<false, Vector<T, kWidth>>(op, kWidth, stream);
  copy<false, T>(op, 1, stream);
}

void run_forward(const graph::OpCall& call) {
  const graph::GatherForward<std::byte> op{call};
  if (size_of(call.input_dtype(graph::GatherIn::kX)) == 4)
    return copy_slices<uint32_t>(op, stream_of(call));
  copy_slices<uint16_t>(op, stream_of(call));
}

void run_elements(const graph::OpCall& call) {
  const graph::GatherForward<std::byte> op{call};
  if (size_of(call.input_dtype(graph::GatherIn::kX)) == 4)
    return copy<true, uint32_t>(op, 1, stream_of(call));
  copy<true, uint16_t>(op, 1, stream_of(call));
}

// ---- Gradients ----

struct WithinExtent {
  const int32_t* indices;
  int64_t extent;
  int32_t* out;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    for (int k = 0; k < Count::value; ++k)
      out[i + k] = static_cast<int32_t>(graph::gathered_index(indices[i + k], extent));
  }
};

template <typename T>
struct SortedBackward {
  graph::GatherSizes sizes;
  const T* d_y;
  const int32_t* sorted;     // (count) the indices in ascending order
  const int32_t* positions;  // (count) their positions; ascending among equal indices
  T* d_x;
  unsigned blocks_across;
};

// Block (position in sorted order, columns of all outer slices): the first of equal indices adds
// all of their slices.
template <int N, typename T>
__global__ void __launch_bounds__(kThreads) sum_slices_kernel(SortedBackward<T> op) {
  const auto [outers, extent, inner, count] = op.sizes;
  const unsigned first = blockIdx.x / op.blocks_across;
  const auto across = static_cast<int64_t>(blockIdx.x - first * op.blocks_across);
  const int64_t at = (across * kThreads + threadIdx.x) * N;
  if (at >= outers * inner) return;
  const int32_t index = op.sorted[first];
  if (first > 0 && op.sorted[first - 1] == index) return;
  const int64_t outer = at / inner, column = at - outer * inner;
  float sum[N] = {};
  for (int64_t i = first; i < count && op.sorted[i] == index; ++i) {
    float d_y[N];
    load(op.d_y + (outer * count + op.positions[i]) * inner + column, d_y);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += d_y[k];
  }
  store(sum, op.d_x + (outer * extent + index) * inner + column);
}

void run_backward(const graph::OpCall& call) {
  const Stream stream = stream_of(call);
  by_type<graph::GatherBackward>(call, [&]<typename T>(const auto& op) {
    const graph::GatherSizes& sizes = op.sizes;
    fill_zeros(op.d_x, sizes.outer * sizes.extent * sizes.inner, stream);
    const int64_t columns = sizes.outer * sizes.inner;
    if (sizes.count == 0 || columns == 0) return;
    const size_t array_bytes = gather_array_bytes(sizes.count);
    const auto array = [&](int number) {
      return reinterpret_cast<int32_t*>(op.workspace + number * array_bytes);
    };
    for_each_flat<1>(sizes.count, false, WithinExtent{op.indices, sizes.extent, array(0)}, stream);
    sort_tokens(array(0),
                sizes.count,
                sizes.extent,
                array(1),
                array(2),
                op.workspace + 3 * array_bytes,
                stream);
    with_vectors<T>(is_vectorizable<T>(sizes.inner, {op.d_y, op.d_x}), [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const SortedBackward<T> sorted{
          sizes, op.d_y, array(1), array(2), op.d_x, blocks_for(columns, kThreads * kWidth)};
      launch({blocks_for(sizes.count * sorted.blocks_across, 1), kThreads, stream},
             sum_slices_kernel<kWidth, T>,
             sorted);
    });
  });
}

// One thread for each column of each outer slice adds to `sums`, which are initially zero, in
// order.
template <typename T>
struct AddElements {
  graph::GatherSizes sizes;
  const T* d_y;
  const int32_t* indices;
  float* sums;  // (outer, extent, inner)
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const auto [outers, extent, inner, count] = sizes;
    const int64_t outer = i / inner, column = i - outer * inner;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t at = (outer * count + k) * inner + column;
      sums[(outer * extent + graph::gathered_index(indices[at], extent)) * inner + column] +=
          to_float(d_y[at]);
    }
  }
};

void run_elements_backward(const graph::OpCall& call) {
  const Stream stream = stream_of(call);
  by_type<graph::GatherBackward>(call, [&]<typename T>(const auto& op) {
    const int64_t n = op.sizes.outer * op.sizes.extent * op.sizes.inner;
    float* sums = reinterpret_cast<float*>(op.workspace);
    if constexpr (std::is_same_v<T, float>) sums = op.d_x;
    fill_zeros(sums, n, stream);
    for_each_flat<1>(op.sizes.outer * op.sizes.inner,
                     false,
                     AddElements<T>{op.sizes, op.d_y, op.indices, sums},
                     stream);
    if constexpr (!std::is_same_v<T, float>) copy_flat(sums, op.d_x, n, stream);
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kGather, "copies"),
    exec::row<run_backward, gather_backward_workspace>(graph::OpKind::kGatherBackward, "sorted"),
    exec::row<run_elements>(graph::OpKind::kGatherElements, "copies"),
    exec::row<run_elements_backward, gather_elements_backward_workspace>(
        graph::OpKind::kGatherElementsBackward, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaGather = kRows;

}  // namespace lockstep::cuda
