// One thread for each word of y. A word has as many elements as divide all rows evenly, up to 16
// bytes.
#include "runtime/graph/ops/concat.h"

#include "runtime/base/dtype.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/fast_division.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

// The parts and the whole, in words: P is Word*, or const Word* if they are read.
template <typename P, typename Divisor>
struct Parts {
  int64_t ends[graph::kMaxConcatInputs];
  P parts[graph::kMaxConcatInputs];
  Divisor columns;
  int count;

  // Calls f(part, element of it) for element i of the whole.
  template <typename F>
  __device__ __forceinline__ void find(int64_t i, F f) const {
    const auto number = static_cast<typename Divisor::Index>(i);
    const auto row = columns.divide(number);
    const auto column = static_cast<int64_t>(number - row * columns.divisor);
    int low = 0, high = count - 1;  // the part is one of these
    while (low < high) {
      const int middle = (low + high) / 2;
      if (column < ends[middle]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const int64_t first = low == 0 ? 0 : ends[low - 1];
    f(parts[low], static_cast<int64_t>(row) * (ends[low] - first) + column - first);
  }
};

template <typename Word, typename Divisor>
struct Join {
  Parts<const Word*, Divisor> x;
  Word* y;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    x.find(i, [&](const Word* from, int64_t at) { y[i] = from[at]; });
  }
};

template <typename Word, typename Divisor>
struct Split {
  Parts<Word*, Divisor> d_x;
  const Word* d_y;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    d_x.find(i, [&](Word* to, int64_t at) {
      if (to != nullptr) to[at] = d_y[i];
    });
  }
};

template <typename P, typename Divisor, typename Bytes>
Parts<P, Divisor> parts_of(const graph::ConcatAttributes& sizes,
                           Bytes* const* arrays,
                           int64_t width) {
  Parts<P, Divisor> made{};
  made.count = sizes.count;
  made.columns = Divisor(sizes.columns() / width);
  for (int k = 0; k < sizes.count; ++k) {
    made.ends[k] = sizes.ends[static_cast<size_t>(k)] / width;
    made.parts[k] = reinterpret_cast<P>(arrays[k]);
  }
  return made;
}

template <typename Word, typename Divisor>
Join<Word, Divisor> copies_of(const graph::ConcatForward<std::byte>& op, int64_t width) {
  return {parts_of<const Word*, Divisor>(op.sizes, op.x, width), reinterpret_cast<Word*>(op.y)};
}

template <typename Word, typename Divisor>
Split<Word, Divisor> copies_of(const graph::ConcatBackward<std::byte>& op, int64_t width) {
  return {parts_of<Word*, Divisor>(op.sizes, op.d_x, width), reinterpret_cast<const Word*>(op.d_y)};
}

// Whether rows and arrays consist of aligned words of `width` elements, which have `bytes` bytes.
template <typename Bytes>
bool in_words(const graph::ConcatAttributes& sizes,
              Bytes* const* arrays,
              const void* whole,
              int64_t width,
              size_t bytes) {
  const auto aligned = [&](const void* array) {
    return reinterpret_cast<uintptr_t>(array) % bytes == 0;
  };
  for (int k = 0; k < sizes.count; ++k) {
    if (sizes.ends[static_cast<size_t>(k)] % width != 0 || !aligned(arrays[k])) return false;
  }
  return aligned(whole);
}

template <typename Word, typename O>
void start(const O& op, int64_t width, Stream stream) {
  const int64_t n = op.sizes.rows * op.sizes.columns() / width;
  with_divisor(n, [&](auto divisor) {
    for_each_flat<1>(n, false, copies_of<Word, decltype(divisor)>(op, width), stream);
  });
}

// T is an unsigned type of the size of an element.
template <typename T, typename O, typename Bytes>
void run(const O& op, Bytes* const* arrays, const void* whole, Stream stream) {
  if (op.sizes.rows * op.sizes.columns() == 0) return;
  constexpr int kWidth = kVectorWidth<T>;
  if (in_words(op.sizes, arrays, whole, kWidth, sizeof(Vector<T, kWidth>)))
    return start<Vector<T, kWidth>>(op, kWidth, stream);
  start<T>(op, 1, stream);
}

void run_forward(const graph::OpCall& call) {
  const graph::ConcatForward<std::byte> op{call};
  if (size_of(call.input_dtype(graph::ConcatIn::kX)) == 4)
    return run<uint32_t>(op, op.x, op.y, stream_of(call));
  run<uint16_t>(op, op.x, op.y, stream_of(call));
}

void run_backward(const graph::OpCall& call) {
  const graph::ConcatBackward<std::byte> op{call};
  if (size_of(call.input_dtype(graph::ConcatBackwardIn::kDY)) == 4)
    return run<uint32_t>(op, op.d_x, op.d_y, stream_of(call));
  run<uint16_t>(op, op.d_x, op.d_y, stream_of(call));
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kConcat, "copies"),
    exec::row<run_backward>(graph::OpKind::kConcatBackward, "copies"),
};

}  // namespace

constinit const exec::Implementations kCudaConcat = kRows;

}  // namespace lockstep::cuda
