// Views are copied in loops: contiguous runs at once, planes that are transposed in blocks of a
// square cache line, and otherwise element by element. Elements are copied as words of their size,
// whatever their type.
#include "runtime/graph/ops/rearrange.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/base/dtype.h"
#include "runtime/base/half.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/strided_loops.h"
#include "runtime/cpu/ops/words.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/rearrange.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm_pack-inl.h"
#include "runtime/cpu/simd-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_OPS_REARRANGE
#define LOCKSTEP_RUNTIME_CPU_OPS_REARRANGE
namespace lockstep::cpu {
// Element (i, j), of rows x columns, is read from from[i + j * from_stride] and written to to[i *
// to_stride + j].
template <typename T>
struct Plane {
  const T* from;
  T* to;
  int64_t rows, columns;
  int64_t from_stride, to_stride;
};
}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

constexpr int64_t kLine = 16;  // elements of a cache line

template <typename T>
HWY_INLINE void transpose_elements(
    const Plane<T>& p, int64_t i_begin, int64_t i_end, int64_t j_begin, int64_t j_end) {
  for (int64_t i = i_begin; i < i_end; ++i) {
    for (int64_t j = j_begin; j < j_end; ++j)
      p.to[i * p.to_stride + j] = p.from[i + j * p.from_stride];
  }
}

// Stores elements that were loaded as floats, without rounding.
HWY_INLINE void store_loaded(Vec v, float* to) { hn::StoreU(v, F32(), to); }
HWY_INLINE void store_loaded(Vec v, BFloat16* to) { half::store(half::AsBF16::pack(v), &to->bits); }

// Transposes a block of kLine x kLine elements.
template <typename T>
HWY_INLINE void transpose_block(const Plane<T>& p, int64_t i_begin, int64_t j_begin) {
#if HWY_TARGET != HWY_SCALAR
  for (int64_t j = j_begin; j < j_begin + kLine; j += kVecLanes) {
    const StridedRows<T> rows{p.from + j * p.from_stride, static_cast<size_t>(p.from_stride)};
    for (int64_t i = i_begin; i < i_begin + kLine; i += 4) {
      Vec out[4];
      load_transposed_4(rows, i, out);
      HWY_UNROLL(4)
      for (int64_t c = 0; c < 4; ++c) store_loaded(out[c], p.to + (i + c) * p.to_stride + j);
    }
  }
#else
  transpose_elements(p, i_begin, i_begin + kLine, j_begin, j_begin + kLine);
#endif
}

template <typename T>
void transpose(const Plane<T>& p) {
  const int64_t block_rows = p.rows / kLine * kLine, block_columns = p.columns / kLine * kLine;
  for (int64_t i = 0; i < block_rows; i += kLine) {
    for (int64_t j = 0; j < block_columns; j += kLine) transpose_block(p, i, j);
    transpose_elements(p, i, i + kLine, block_columns, p.columns);
  }
  transpose_elements(p, block_rows, p.rows, 0, p.columns);
}

void transpose_kernel(AnyStored<Plane> stored) {
  stored.with([](const auto& plane) HWY_ATTR { transpose(plane); });
}

// sum[0 ... n) += from.
void add_to_sums_kernel(float* sum, const float* from, int64_t n) {
  for_each_vector(n, [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::Add(access.load(sum + i), access.load(from + i)), sum + i);
  });
}

float row_sum_kernel(const float* from, int64_t n) { return row_sum(from, n); }

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(transpose_kernel);
HWY_EXPORT(add_to_sums_kernel);
HWY_EXPORT(row_sum_kernel);

namespace {

// ---- Copies ----

// Copies runs along the last loop; long runs are cut into pieces.
template <typename T>
void copy_runs(const StridedLoops& all, const T* x, T* y) {
  const int outer = all.rank - 1;
  const int64_t run = all.loops[outer].count;
  const int64_t pieces = (run + kGrainElements - 1) / kGrainElements;
  const int64_t length = (run + pieces - 1) / pieces;
  const int64_t count = all.elements() / run * pieces;
  parallel_for(count, grain_rows(length), [&](int64_t begin, int64_t end) {
    StridedPosition position(all, outer, begin / pieces);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % pieces * length, n = std::min(run - first, length);
      copy_words(x + position.from + first, n, y + position.to + first);
      if (k % pieces == pieces - 1) position.advance();
    }
  });
}

// The last two loops as planes: y is written along the last, x is read along the one before.
template <typename T>
void copy_planes(const StridedLoops& all, const T* x, T* y) {
  constexpr int64_t kStrip = 64;  // rows of y at a time
  const int outer = all.rank - 2;
  const StridedLoop rows = all.loops[outer], columns = all.loops[outer + 1];
  const int64_t strips = (rows.count + kStrip - 1) / kStrip;
  const int64_t planes = all.elements() / (rows.count * columns.count);
  const auto kernel = HWY_DYNAMIC_DISPATCH(transpose_kernel);
  const int64_t strip_elements = std::min(rows.count, kStrip) * columns.count;
  parallel_for(planes * strips, grain_rows(strip_elements), [&](int64_t begin, int64_t end) {
    StridedPosition position(all, outer, begin / strips);
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % strips * kStrip;
      kernel(Plane<T>{.from = x + position.from + first,
                      .to = y + position.to + first * rows.to,
                      .rows = std::min(rows.count - first, kStrip),
                      .columns = columns.count,
                      .from_stride = columns.from,
                      .to_stride = rows.to});
      if (k % strips == strips - 1) position.advance();
    }
  });
}

template <typename T>
void copy_elements(const StridedLoops& all, const T* x, T* y) {
  const int outer = all.rank - 1;
  const StridedLoop inner = all.loops[outer];
  parallel_for(
      all.elements() / inner.count, grain_rows(inner.count), [&](int64_t begin, int64_t end) {
        StridedPosition position(all, outer, begin);
        for (int64_t k = begin; k < end; ++k, position.advance()) {
          const T* from = x + position.from;
          T* to = y + position.to;
          if (inner.from == 0 && inner.to == 1) {
            std::fill_n(to, inner.count, *from);
            continue;
          }
          for (int64_t i = 0; i < inner.count; ++i) to[i * inner.to] = from[i * inner.from];
        }
      });
}

// y's elements are those of x that the view reads.
template <typename T>
void copy_view(const graph::View& view, const T* x, T* y) {
  StridedLoops all(view);
  if (all.elements() == 0) return;
  if (all.rank == 0) {
    y[all.to] = x[all.from];
    return;
  }
  const StridedLoop inner = all.loops[all.rank - 1];
  if (inner.to == 1 && inner.from == 1) return copy_runs(all, x, y);
  for (int d = 0; d < all.rank - 1 && inner.to == 1; ++d) {
    if (all.loops[d].from != 1) continue;
    std::rotate(&all.loops[d], &all.loops[d] + 1, &all.loops[all.rank - 1]);
    return copy_planes(all, x, y);
  }
  copy_elements(all, x, y);
}

// What fills elements that are not read.
float fill_word(const graph::RearrangeForward<float>& op) {
  const bool is_integer = op.call.input_dtype(graph::RearrangeIn::kX) == DType::kI32;
  return is_integer ? std::bit_cast<float>(static_cast<int32_t>(op.view.fill)) : op.view.fill;
}
BFloat16 fill_word(const graph::RearrangeForward<BFloat16>& op) {
  return round_to<BFloat16>(op.view.fill);
}

template <typename T>
void run_forward(const graph::RearrangeForward<T>& op) {
  if (!op.view.reads_everywhere()) {
    const T word = fill_word(op);
    parallel_for(op.view.elements(), kGrainElements, [&](int64_t begin, int64_t end) {
      std::fill(op.y + begin, op.y + end, word);
    });
  }
  copy_view(op.view, op.x, op.y);
}

template <typename T>
void run_reshape(const graph::Reshape<T>& op) {
  if (op.x == op.y) return;
  parallel_for(op.n, kGrainElements, [&](int64_t begin, int64_t end) {
    std::memcpy(op.y + begin, op.x + begin, (end - begin) * sizeof(T));
  });
}

// ---- Gradients ----

// The terms of each sum are cut into parts that depend on the shapes alone. Each part is summed
// separately, then the parts are added in order.
struct SumParts {
  int64_t count, length;

  static SumParts of(int64_t terms, int64_t outputs) {
    constexpr int64_t kMinTerms = 256;         // of a part
    constexpr int64_t kMaxPartials = 1 << 16;  // unless there are more outputs
    const int64_t target_parts =
        std::min((terms + kMinTerms - 1) / kMinTerms,
                 std::max<int64_t>(1, kMaxPartials / std::max<int64_t>(1, outputs)));
    if (target_parts <= 1) return {1, terms};
    const int64_t length = (terms + target_parts - 1) / target_parts;
    return {(terms + length - 1) / length, length};
  }
};

using Backward = graph::RearrangeBackward<float, float>;

// The terms as loops that move only in d_y.
StridedLoops loops_of(const graph::ViewTerms& terms) {
  StridedLoops all{graph::View()};
  for (int d = 0; d < terms.rank; ++d)
    all.loops[all.rank++] = {terms.loops[d].count, terms.loops[d].stride, 0};
  return all;
}

struct Sums {
  explicit Sums(const Backward& op)
      : outputs(op.view),
        terms(loops_of(op.terms)),
        parts(SumParts::of(op.terms.count(), outputs.elements())) {
    // Outputs that are contiguous in d_y are summed together, in vectors.
    if (outputs.rank > 0) columns = outputs.loops[outputs.rank - 1];
    row_rank = std::max(0, outputs.rank - 1);
  }
  int64_t rows() const { return columns.count == 0 ? 0 : outputs.elements() / columns.count; }

  StridedLoops outputs, terms;
  SumParts parts;
  StridedLoop columns{1, 1, 1};  // the last loop of the outputs
  int row_rank;                  // of the loops before it
};

constexpr int64_t kColumns = 256;  // summed at a time

// sum[0 ... n) = the terms [begin, end) of contiguous outputs, which begin at `from` in d_y.
void sum_vectors(
    const Sums& sums, const float* from, int64_t begin, int64_t end, int64_t n, float* sum) {
  const auto add = HWY_DYNAMIC_DISPATCH(add_to_sums_kernel);
  std::fill_n(sum, n, 0.0f);
  if (begin == end) return;
  StridedPosition position(sums.terms, sums.terms.rank, begin);
  for (int64_t term = begin; term < end; ++term, position.advance())
    add(sum, from + position.from, n);
}

// The terms [begin, end) of one output.
float sum_one(const Sums& sums, const float* from, int64_t begin, int64_t end) {
  const StridedLoops& terms = sums.terms;
  float sum = 0;
  if (begin == end) return sum;
  if (terms.rank > 0 && terms.loops[terms.rank - 1].from == 1) {
    const auto row = HWY_DYNAMIC_DISPATCH(row_sum_kernel);
    const int64_t length = terms.loops[terms.rank - 1].count;
    for (int64_t term = begin; term < end;) {
      const int64_t n = std::min(end - term, length - term % length);
      sum += row(from + StridedPosition(terms, terms.rank, term).from, n);
      term += n;
    }
    return sum;
  }
  StridedPosition position(terms, terms.rank, begin);
  for (int64_t term = begin; term < end; ++term, position.advance()) sum += from[position.from];
  return sum;
}

// Part `part` of the sums of columns [first, first + n) of a row that begins at `from`.
void sum_columns(
    const Sums& sums, const float* from, int64_t part, int64_t first, int64_t n, float* sum) {
  const int64_t begin = part * sums.parts.length;
  const int64_t end = std::min(begin + sums.parts.length, sums.terms.elements());
  if (sums.columns.from == 1) return sum_vectors(sums, from + first, begin, end, n, sum);
  for (int64_t i = 0; i < n; ++i)
    sum[i] = sum_one(sums, from + (first + i) * sums.columns.from, begin, end);
}

void write(
    const Backward& op, const Sums& sums, int64_t to, int64_t first, int64_t n, const float* sum) {
  float* const d_x = op.d_x + to + first * sums.columns.to;
  for (int64_t i = 0; i < n; ++i) {
    float& at = d_x[i * sums.columns.to];
    at = op.accumulate ? at + sum[i] : sum[i];
  }
}

// f(round, position of the row, row, first column, columns) for all outputs, `times` times.
template <typename F>
void for_each_columns(const Sums& sums, int64_t times, int64_t cost, F f) {
  const int64_t pieces = (sums.columns.count + kColumns - 1) / kColumns;
  const int64_t rows = sums.rows();
  const int64_t elements = std::min(sums.columns.count, kColumns) * cost;
  parallel_for(times * rows * pieces, grain_rows(elements), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k % pieces * kColumns, row = k / pieces % rows;
      const int64_t n = std::min(kColumns, sums.columns.count - first);
      f(k / pieces / rows, StridedPosition(sums.outputs, sums.row_rank, row), row, first, n);
    }
  });
}

size_t backward_workspace_bytes(const Backward& op) {
  const Sums sums(op);
  return sums.parts.count <= 1 ? 0 : sums.parts.count * sums.outputs.elements() * sizeof(float);
}

void run_backward(const Backward& op) {
  if (!op.accumulate && !op.view.reads_everywhere()) clear_words(op.d_x, op.view.elements());
  const Sums sums(op);
  const int64_t outputs = sums.outputs.elements();
  if (outputs == 0) return;
  const auto partial = [&](int64_t part, int64_t row, int64_t first) {
    return op.workspace + part * outputs + row * sums.columns.count + first;
  };
  for_each_columns(
      sums,
      sums.parts.count,
      sums.parts.length,
      [&](int64_t part, const StridedPosition& position, int64_t row, int64_t first, int64_t n) {
        float sum[kColumns];
        const bool one_part = sums.parts.count == 1;
        float* const to = one_part ? sum : partial(part, row, first);
        sum_columns(sums, op.d_y + position.from, part, first, n, to);
        if (one_part) write(op, sums, position.to, first, n, sum);
      });
  if (sums.parts.count == 1) return;
  const auto add = HWY_DYNAMIC_DISPATCH(add_to_sums_kernel);
  for_each_columns(
      sums,
      1,
      sums.parts.count,
      [&](int64_t, const StridedPosition& position, int64_t row, int64_t first, int64_t n) {
        float* const sum = partial(0, row, first);
        for (int64_t part = 1; part < sums.parts.count; ++part)
          add(sum, partial(part, row, first), n);
        write(op, sums, position.to, first, n, sum);
      });
}

// Gradients of bfloat16 that are not sums are copied.
bool is_copy(const graph::OpCall& call) {
  const auto& attributes = call.attributes<graph::RearrangeBackwardAttributes>();
  return attributes.terms.count() == 1 && !attributes.accumulate &&
         call.input_dtype(graph::RearrangeBackwardIn::kDY) == DType::kBF16 &&
         call.output_dtype(graph::RearrangeBackwardOut::kDX) == DType::kBF16;
}

void run_copy(const graph::RearrangeBackward<BFloat16, BFloat16>& op) {
  if (!op.view.reads_everywhere()) std::fill_n(op.d_x, op.view.elements(), BFloat16{});
  copy_view(op.view, op.d_y, op.d_x);
}

constexpr exec::Implementation kRows[] = {
    native_row<run_forward<float>, run_forward<BFloat16>>(graph::OpKind::kRearrange, "copies"),
    native_row<run_reshape<float>, run_reshape<BFloat16>>(graph::OpKind::kReshape, "copy"),
    exec::row<run_copy, exec::no_workspace, is_copy>(graph::OpKind::kRearrangeBackward, "copies"),
    row<run_backward, backward_workspace_bytes>(graph::OpKind::kRearrangeBackward, "sums"),
};

}  // namespace

constinit const exec::Implementations kCpuRearrange = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
