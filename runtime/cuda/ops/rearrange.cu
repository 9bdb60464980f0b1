// Views are copied by one thread for each word of y, which computes the source offset. A word has
// as many elements as are contiguous in both x and y, up to 16 bytes. If x and y are contiguous
// along different dimensions, planes are transposed in blocks through shared memory.
#include "runtime/graph/ops/rearrange.h"

#include <bit>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/fast_division.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/plan/indexing.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;

// A view in the form in which kernels traverse it.
template <typename Divisor>
struct ViewWalk {
  struct Dimension {
    Divisor extent;
    int64_t begin, end, step, stride;
  };
  Dimension dimensions[graph::View::kMaxRank];
  int rank;
  int64_t offset;

  ViewWalk() = default;
  explicit ViewWalk(const graph::View& view) : rank(view.rank), offset(view.offset) {
    for (int d = 0; d < rank; ++d) {
      const graph::ViewDimension& from = view.dimensions[static_cast<size_t>(d)];
      dimensions[d] = {Divisor(from.extent), from.begin, from.end, from.step, from.stride};
    }
  }

  // The element of x that element i of y reads; -1 if it reads none.
  __device__ __forceinline__ int64_t source(typename Divisor::Index i) const {
    int64_t at = offset;
    for (int d = rank; d-- > 0;) {
      const Dimension& dimension = dimensions[d];
      const auto outer = dimension.extent.divide(i);
      const auto index = static_cast<int64_t>(i - outer * dimension.extent.divisor);
      i = outer;
      if (index < dimension.begin || index >= dimension.end) return -1;
      int64_t steps = index - dimension.begin;
      if (dimension.step != 1) {
        if (steps % dimension.step != 0) return -1;
        steps /= dimension.step;
      }
      at += steps * dimension.stride;
    }
    return at;
  }
};

// ---- Copies ----

template <typename Word, typename Divisor>
struct CopyWords {
  ViewWalk<Divisor> view;
  const Word* x;
  Word* y;
  Word fill;
  template <typename Count>
  __device__ void operator()(int64_t i, Count) const {
    const int64_t from = view.source(static_cast<typename Divisor::Index>(i));
    y[i] = from < 0 ? fill : x[from];
  }
};

template <typename Word>
void copy_words(
    const graph::View& view, const std::byte* x, std::byte* y, Word fill, Stream stream) {
  const int64_t n = view.elements();
  if (n == 0) return;
  with_divisor(n, [&](auto divisor) {
    using Walk = ViewWalk<decltype(divisor)>;
    for_each_flat<1>(
        n,
        false,
        CopyWords<Word, decltype(divisor)>{
            Walk(view), reinterpret_cast<const Word*>(x), reinterpret_cast<Word*>(y), fill},
        stream);
  });
}

// Sets `words` to the view in words of `width` > 1 elements. Returns false if there is none.
bool in_words(const graph::View& view, int64_t width, graph::View& words) {
  if (view.rank == 0 || view.offset % width != 0) return false;
  words = view;
  words.offset /= width;
  for (int d = 0; d < view.rank - 1; ++d) {
    int64_t& stride = words.dimensions[static_cast<size_t>(d)].stride;
    if (stride % width != 0) return false;
    stride /= width;
  }
  graph::ViewDimension& last = words.dimensions[static_cast<size_t>(view.rank - 1)];
  if (last.stride != 1 || last.step != 1) return false;
  for (int64_t* const number : {&last.extent, &last.begin, &last.end}) {
    if (*number % width != 0) return false;
    *number /= width;
  }
  return true;
}

// T is an unsigned type of the size of an element.
template <typename T>
void copy(const graph::View& view, const std::byte* x, std::byte* y, T fill, Stream stream) {
  graph::View words;
  const auto fits = [&](int64_t width) {
    const auto bytes = static_cast<uintptr_t>(width) * sizeof(T);
    return reinterpret_cast<uintptr_t>(x) % bytes == 0 &&
           reinterpret_cast<uintptr_t>(y) % bytes == 0 && in_words(view, width, words);
  };
  const auto start = [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    Vector<T, kWidth> word;
    for (T& element : word.at) element = fill;
    copy_words(words, x, y, word, stream);
  };
  if (fits(kVectorWidth<T>)) return start(std::integral_constant<int, kVectorWidth<T>>());
  if (fits(kVectorWidth<T> / 2)) return start(std::integral_constant<int, kVectorWidth<T> / 2>());
  copy_words(view, x, y, fill, stream);
}

// ---- Transposed planes ----

constexpr int kBlock = 32, kBlockRows = 8;

// The planes of a view that reads everywhere: y is written along the last dimension, x is read
// along another one. The remaining dimensions enumerate the planes.
struct Planes {
  struct Dimension {
    int64_t extent, from, to;  // elements of x and y between neighbours
  };
  Dimension others[graph::View::kMaxRank];
  int rank = 0;
  int64_t rows = 0, columns = 0;  // along x, along y
  int64_t from_stride, to_stride;
  int64_t offset;
  int64_t planes = 1;

  // Returns false if the view has no such planes, or if they are too narrow.
  bool find(const graph::View& view) {
    if (!view.reads_everywhere() || view.rank < 2) return false;
    const graph::ViewDimension& last = view.dimensions[static_cast<size_t>(view.rank - 1)];
    columns = last.extent;
    from_stride = last.stride;
    offset = view.offset;
    int64_t y_stride = columns;
    for (int d = view.rank - 1; d-- > 0;) {
      const graph::ViewDimension& dimension = view.dimensions[static_cast<size_t>(d)];
      if (dimension.stride == 1 && rows == 0) {
        rows = dimension.extent;
        to_stride = y_stride;
      } else {
        others[rank++] = {dimension.extent, dimension.stride, y_stride};
        planes *= dimension.extent;
      }
      y_stride *= dimension.extent;
    }
    constexpr int64_t kLeast = 8;
    return last.stride != 1 && rows >= kLeast && columns >= kLeast && blocks() < kMaxIndices32;
  }
  __host__ __device__ int64_t blocks_down() const { return (rows + kBlock - 1) / kBlock; }
  __host__ __device__ int64_t blocks_across() const { return (columns + kBlock - 1) / kBlock; }
  int64_t blocks() const { return planes * blocks_down() * blocks_across(); }
};

template <typename T>
__global__ void __launch_bounds__(kBlock* kBlockRows)
    transpose_kernel(Planes planes, const T* x, T* y) {
  __shared__ T block[kBlock][kBlock + 1];  // one more, so that columns are in different banks
  const auto across = static_cast<uint32_t>(planes.blocks_across()),
             down = static_cast<uint32_t>(planes.blocks_down());
  uint32_t number = blockIdx.x;
  const int64_t column = static_cast<int64_t>(number % across) * kBlock;
  number /= across;
  const int64_t row = static_cast<int64_t>(number % down) * kBlock;
  number /= down;
  int64_t from = planes.offset, to = 0;
  for (int d = 0; d < planes.rank; ++d) {  // innermost first
    const auto extent = static_cast<uint32_t>(planes.others[d].extent);
    const int64_t index = number % extent;
    number /= extent;
    from += index * planes.others[d].from;
    to += index * planes.others[d].to;
  }
  const int i = static_cast<int>(threadIdx.x), k = static_cast<int>(threadIdx.y);
  for (int j = k; j < kBlock; j += kBlockRows) {
    if (row + i < planes.rows && column + j < planes.columns)
      block[j][i] = x[from + row + i + (column + j) * planes.from_stride];
  }
  __syncthreads();
  for (int j = k; j < kBlock; j += kBlockRows) {
    if (row + j < planes.rows && column + i < planes.columns)
      y[to + (row + j) * planes.to_stride + column + i] = block[i][j];
  }
}

template <typename T>
void rearrange(const graph::View& view, const std::byte* x, std::byte* y, T fill, Stream stream) {
  Planes planes;
  if (!planes.find(view)) return copy<T>(view, x, y, fill, stream);
  if (planes.blocks() == 0) return;
  launch({blocks_for(planes.blocks(), 1), {kBlock, kBlockRows, 1}, stream},
         transpose_kernel<T>,
         planes,
         reinterpret_cast<const T*>(x),
         reinterpret_cast<T*>(y));
}

void run_forward(const graph::OpCall& call) {
  const graph::RearrangeForward<std::byte> op{call};
  const Stream stream = stream_of(call);
  const float fill = op.view.fill;
  switch (call.input_dtype(graph::RearrangeIn::kX)) {
    case DType::kI32:
      return rearrange(
          op.view, op.x, op.y, static_cast<uint32_t>(static_cast<int32_t>(fill)), stream);
    case DType::kF32: return rearrange(op.view, op.x, op.y, std::bit_cast<uint32_t>(fill), stream);
    case DType::kBF16: return rearrange(op.view, op.x, op.y, round_to<BFloat16>(fill).bits, stream);
    case DType::kF16: return rearrange(op.view, op.x, op.y, round_to<Float16>(fill).bits, stream);
    default: LOCKSTEP_REQUIRE(!"a type that is rearranged");
  }
}

void run_reshape(const graph::OpCall& call) {
  const graph::Reshape<std::byte> op{call};
  if (op.x == op.y || op.n == 0) return;
  graph::View all;
  all.rank = 1;
  all.dimensions[0] = {op.n, 0, op.n, 1, 1};
  if (size_of(call.input_dtype(graph::RearrangeIn::kX)) == 4)
    return copy<uint32_t>(all, op.x, op.y, 0, stream_of(call));
  copy<uint16_t>(all, op.x, op.y, 0, stream_of(call));
}

// ---- Gradients ----

template <typename T, typename D>
struct Sums {
  ViewWalk<Divisor64> view;  // of d_x into d_y
  graph::ViewTerms terms;
  SumParts parts;
  int64_t outputs, term_count;
  bool accumulate;
  const T* d_y;
  D* d_x;
  float* partials;  // (parts, outputs), if there are several parts

  Sums(const graph::RearrangeBackward<T, D>& op)
      : view(op.view),
        terms(op.terms),
        parts(SumParts::of(op.terms.count(), op.view.elements())),
        outputs(op.view.elements()),
        term_count(op.terms.count()),
        accumulate(op.accumulate),
        d_y(op.d_y),
        d_x(op.d_x),
        partials(op.workspace) {}

  // The part of this block. A block that a tall grid has past the last part repeats it, with the
  // same bits.
  __device__ __forceinline__ int64_t part() const {
    const auto number = static_cast<unsigned>(block_down()),
               last = static_cast<unsigned>(parts.count) - 1;
    return number < last ? number : last;
  }
  // The end of the part that begins at `begin`.
  __device__ __forceinline__ int64_t end_of(int64_t begin) const {
    return begin + parts.length < term_count ? begin + parts.length : term_count;
  }
  // The sum of this thread, one of `threads`, over the terms [begin, end) from d_y[from] on.
  __device__ __forceinline__ float sum_terms(
      int64_t from, int64_t begin, int64_t end, int thread, int threads) const {
    const graph::ViewTerms::Loop inner =
        terms.rank == 0 ? graph::ViewTerms::Loop() : terms.loops[terms.rank - 1];
    float sum = 0;
    while (begin < end) {  // a run of the innermost loop
      int64_t outer = begin / inner.count;
      const int64_t first = begin - outer * inner.count;
      const int64_t left = inner.count - first;
      const int64_t n = end - begin < left ? end - begin : left;
      int64_t at = from + first * inner.stride;
      for (int d = terms.rank - 1; d-- > 0;) {
        at += outer % terms.loops[d].count * terms.loops[d].stride;
        outer /= terms.loops[d].count;
      }
      for (int64_t k = thread; k < n; k += threads) sum += to_float(d_y[at + k * inner.stride]);
      begin += n;
    }
    return sum;
  }
  __device__ __forceinline__ void write(int64_t i, float sum) const {
    d_x[i] = round_to<D>(accumulate ? to_float(d_x[i]) + sum : sum);
  }
  __device__ __forceinline__ void write_part(int64_t part, int64_t i, float sum) const {
    if (parts.count == 1) {
      write(i, sum);
    } else {
      partials[part * outputs + i] = sum;
    }
  }
};

// One thread for each output and part. Three blocks on a multiprocessor are enough: for more, the
// compiler spills registers.
template <typename T, typename D>
__global__ void __launch_bounds__(kThreads, 3) sum_kernel(Sums<T, D> op) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, part = op.part();
  if (i >= op.outputs) return;
  const int64_t from = op.view.source(static_cast<uint64_t>(i));
  const int64_t begin = part * op.parts.length;
  const float sum = from < 0 ? 0 : op.sum_terms(from, begin, op.end_of(begin), 0, 1);
  op.write_part(part, i, sum);
}

// One warp for each output and part; the terms are contiguous in d_y.
template <typename T, typename D>
__global__ void __launch_bounds__(kThreads, 3) sum_rows_kernel(Sums<T, D> op) {
  constexpr int kWarps = kThreads / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const int64_t part = op.part();
  if (i >= op.outputs) return;
  const int64_t from = op.view.source(static_cast<uint64_t>(i));
  const int64_t begin = part * op.parts.length;
  float sum = from < 0 ? 0 : op.sum_terms(from, begin, op.end_of(begin), lane, kWarp);
  sum = warp_reduce<Sum>(sum);
  if (lane == 0) op.write_part(part, i, sum);
}

template <typename T, typename D>
__global__ void __launch_bounds__(kThreads) join_parts_kernel(Sums<T, D> op) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= op.outputs) return;
  float sum = 0;
  for (int64_t part = 0; part < op.parts.count; ++part) sum += op.partials[part * op.outputs + i];
  op.write(i, sum);
}

template <typename T, typename D>
void run_sums(const graph::RearrangeBackward<T, D>& backward, Stream stream) {
  const Sums<T, D> op(backward);
  if (op.outputs == 0) return;
  const int64_t parts = op.parts.count;
  const int rank = op.terms.rank;
  const bool rows = rank > 0 && op.terms.loops[rank - 1].stride == 1 &&
                    op.terms.loops[rank - 1].count >= kWarp / 2;
  if (rows) {
    launch({tall_grid(blocks_for(op.outputs, kThreads / kWarp), parts), kThreads, stream},
           sum_rows_kernel<T, D>,
           op);
  } else {
    launch({tall_grid(blocks_for(op.outputs, kThreads), parts), kThreads, stream},
           sum_kernel<T, D>,
           op);
  }
  if (parts > 1)
    launch({blocks_for(op.outputs, kThreads), kThreads, stream}, join_parts_kernel<T, D>, op);
}

void run_backward(const graph::OpCall& call) {
  by_type(call.input_dtype(graph::RearrangeBackwardIn::kDY), [&]<typename T>() {
    if (call.output_dtype(graph::RearrangeBackwardOut::kDX) == DType::kF32)
      return run_sums(graph::RearrangeBackward<T, float>{call}, stream_of(call));
    run_sums(graph::RearrangeBackward<T, T>{call}, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run_forward>(graph::OpKind::kRearrange, "copies"),
    exec::row<run_reshape>(graph::OpKind::kReshape, "copy"),
    exec::row<run_backward, rearrange_backward_workspace>(graph::OpKind::kRearrangeBackward,
                                                          "sums"),
};

}  // namespace

constinit const exec::Implementations kCudaRearrange = kRows;

}  // namespace lockstep::cuda
