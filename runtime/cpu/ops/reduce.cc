// There are two ways, depending on what is contiguous in memory: the elements of one result (by
// rows), or elements of different results (by columns). Both cut the elements of a result into
// parts whose number depends on the shape alone, and combine the parts in their order.
#include "runtime/graph/ops/reduce.h"

#include <algorithm>
#include <limits>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/reduce.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_OPS_REDUCE_CC
#define LOCKSTEP_RUNTIME_CPU_OPS_REDUCE_CC
namespace lockstep::cpu {

// The division of a result by rows: `count` parts, each of `runs` complete runs, or of `length`
// elements of one run.
struct RowReduceParts {
  static constexpr int64_t kElements = 4096;

  explicit RowReduceParts(const graph::ReduceDimensions& reduced)
      : run(reduced.extents[reduced.rank - 1]),
        all_runs(reduced.count / run),
        runs(std::max<int64_t>(1, kElements / run)),
        length(runs > 1 ? run : std::min(run, kElements)),
        per_run((run + length - 1) / length),
        count(runs > 1 ? (all_runs + runs - 1) / runs : all_runs * per_run) {}
  int64_t run, all_runs, runs, length, per_run, count;
};

// The division of results by columns: parts of at least 16 rows, which keep all threads busy and
// the sum of many rows accurate.
struct ColumnParts {
  explicit ColumnParts(const graph::ReduceLoops& loops)
      : columns(loops.kept.extents[loops.kept.rank - 1]),
        groups(columns == 0 ? 0 : loops.kept.count / columns),
        rows(loops.reduced.count),
        rows_each(std::max<int64_t>(16, (rows + 127) / 128)),
        count(std::max<int64_t>(1, (rows + rows_each - 1) / rows_each)) {}
  int64_t columns, groups, rows, rows_each, count;
};

}  // namespace lockstep::cpu
#endif  // LOCKSTEP_RUNTIME_CPU_OPS_REDUCE_CC

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The operations. A mean is a sum that is divided at the end.
struct SumOf {
  static constexpr float kNone = 0;
  static HWY_INLINE Vec apply(Vec a, Vec b) { return hn::Add(a, b); }
  static double apply(double a, double b) { return a + b; }
};
struct ProductOf {
  static constexpr float kNone = 1;
  static HWY_INLINE Vec apply(Vec a, Vec b) { return hn::Mul(a, b); }
  static double apply(double a, double b) { return a * b; }
};
// Propagates NaN.
struct MaxOf {
  static constexpr float kNone = -std::numeric_limits<float>::infinity();
  static HWY_INLINE Vec apply(Vec a, Vec b) {
    return hn::IfThenElse(hn::Or(hn::Gt(b, a), hn::IsNaN(b)), b, a);
  }
  static double apply(double a, double b) { return b > a || b != b ? b : a; }
};
struct MinOf {
  static constexpr float kNone = std::numeric_limits<float>::infinity();
  static HWY_INLINE Vec apply(Vec a, Vec b) {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
  }
  static double apply(double a, double b) { return b < a || b != b ? b : a; }
};

template <typename Body>
HWY_INLINE void with_kind(graph::ReduceKind kind, Body&& body) {
  switch (kind) {
    case graph::ReduceKind::kSum:
    case graph::ReduceKind::kMean: return body(SumOf());
    case graph::ReduceKind::kMax: return body(MaxOf());
    case graph::ReduceKind::kMin: return body(MinOf());
    case graph::ReduceKind::kProduct: return body(ProductOf());
  }
}

template <typename T>
HWY_INLINE float divided(const graph::ReduceForward<T>& op, double value) {
  if (op.kind == graph::ReduceKind::kMean) value /= static_cast<double>(op.loops.reduced.count);
  return static_cast<float>(value);
}

// ---- By rows ----

// Writes the parts [begin, end) of all results, in order, to `sums`; each is reduced in 16 virtual
// lanes.
template <typename T>
void reduce_rows(const graph::ReduceForward<T>& op, float* sums, int64_t begin, int64_t end) {
  const RowReduceParts parts(op.loops.reduced);
  const bool one_part = parts.count == 1;
  with_kind(op.kind, [&](auto operation) HWY_ATTR {
    using Operation = decltype(operation);
    for (int64_t number = begin; number < end; ++number) {
      const T* x = op.x + op.loops.kept.offset(number / parts.count);
      const int64_t part = number % parts.count;
      Vec lanes[kParts];
      for (Vec& lane : lanes) lane = set(Operation::kNone);
      const auto add_run = [&](const T* from, int64_t n) HWY_ATTR {
        for_each_row_vector(
            static_cast<size_t>(n), [&](size_t i, auto vector_index, auto access) HWY_ATTR {
              lanes[vector_index] =
                  Operation::apply(lanes[vector_index], access.load_or(from + i, Operation::kNone));
            });
      };
      if (parts.runs > 1) {
        const int64_t last = std::min(parts.all_runs, (part + 1) * parts.runs);
        for (int64_t run = part * parts.runs; run < last; ++run)
          add_run(x + op.loops.reduced.offset(run * parts.run), parts.run);
      } else {
        const int64_t at = part % parts.per_run * parts.length;
        add_run(x + op.loops.reduced.offset(part / parts.per_run * parts.run) + at,
                std::min(parts.length, parts.run - at));
      }
      alignas(64) float all[kRowLanes];
      each_part<0>([&](auto vector_index) HWY_ATTR {
        hn::Store(lanes[vector_index], F32(), all + vector_index * kVecLanes);
      });
      for (size_t width = kRowLanes / 2; width > 0; width /= 2) {
        for (size_t k = 0; k < width; ++k)
          all[k] = static_cast<float>(Operation::apply(double{all[k]}, double{all[k + width]}));
      }
      sums[number] = one_part ? divided(op, all[0]) : all[0];
    }
  });
}

// Results [begin, end) from their parts.
template <typename T>
void combine_row_parts(
    const graph::ReduceForward<T>& op, const float* sums, float* y, int64_t begin, int64_t end) {
  const int64_t count = RowReduceParts(op.loops.reduced).count;
  with_kind(op.kind, [&](auto operation) HWY_ATTR {
    for (int64_t i = begin; i < end; ++i) {
      double total = sums[i * count];
      for (int64_t part = 1; part < count; ++part)
        total = operation.apply(total, double{sums[i * count + part]});
      y[i] = divided(op, total);
    }
  });
}

// ---- By columns ----

// to (columns) = x's rows combined in order; begin_of(row) returns the offset of a row.
template <typename Operation, typename From, typename BeginOf>
HWY_INLINE void combine_rows(int64_t columns, int64_t rows, float* to, BeginOf begin_of) {
  constexpr int64_t kAtOnce = 4;  // rows, so that `to` is read and written less often
  for (int64_t row = 0; row < rows; row += kAtOnce) {
    const int64_t n = std::min(kAtOnce, rows - row);
    const From* from[kAtOnce];
    for (int64_t k = 0; k < n; ++k) from[k] = begin_of(row + k);
    const bool first = row == 0;
    for_each_vector(static_cast<size_t>(columns), [&](size_t i, auto access) HWY_ATTR {
      Vec sum = first ? access.load(from[0] + i)
                      : Operation::apply(access.load(to + i), access.load(from[0] + i));
      if (n == kAtOnce) {
        for (int64_t k = 1; k < kAtOnce; ++k) sum = Operation::apply(sum, access.load(from[k] + i));
      } else {
        for (int64_t k = 1; k < n; ++k) sum = Operation::apply(sum, access.load(from[k] + i));
      }
      access.store(sum, to + i);
    });
  }
}

// Divides each row of `to` if it is a mean.
template <typename T>
HWY_INLINE void divide(const graph::ReduceForward<T>& op, float* to, int64_t columns) {
  if (op.kind != graph::ReduceKind::kMean) return;
  const Vec count = set(static_cast<float>(op.loops.reduced.count));
  for_each_vector(static_cast<size_t>(columns), [&](size_t i, auto access) HWY_ATTR {
    access.store(hn::Div(access.load(to + i), count), to + i);
  });
}

// Writes parts [begin, end) of all groups, in order, to `sums` (groups, parts, columns).
template <typename T>
void reduce_columns(const graph::ReduceForward<T>& op, float* sums, int64_t begin, int64_t end) {
  const ColumnParts parts(op.loops);
  with_kind(op.kind, [&](auto operation) HWY_ATTR {
    for (int64_t number = begin; number < end; ++number) {
      const T* x = op.x + op.loops.kept.offset(number / parts.count * parts.columns);
      const int64_t row = number % parts.count * parts.rows_each;
      float* const to = sums + number * parts.columns;
      combine_rows<decltype(operation), T>(
          parts.columns, std::min(parts.rows_each, parts.rows - row), to, [&](int64_t r) {
            return x + op.loops.reduced.offset(row + r);
          });
      if (parts.count == 1) divide(op, to, parts.columns);
    }
  });
}

// Groups [begin, end) from their parts.
template <typename T>
void combine_column_parts(
    const graph::ReduceForward<T>& op, const float* sums, float* y, int64_t begin, int64_t end) {
  const ColumnParts parts(op.loops);
  with_kind(op.kind, [&](auto operation) HWY_ATTR {
    for (int64_t group = begin; group < end; ++group) {
      const float* from = sums + group * parts.count * parts.columns;
      float* const to = y + group * parts.columns;
      combine_rows<decltype(operation), float>(parts.columns, parts.count, to, [&](int64_t part) {
        return from + part * parts.columns;
      });
      divide(op, to, parts.columns);
    }
  });
}

void reduce_rows_kernel(AnyStored<graph::ReduceForward> stored,
                        float* sums,
                        int64_t begin,
                        int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { reduce_rows(op, sums, begin, end); });
}
void combine_rows_kernel(AnyStored<graph::ReduceForward> stored,
                         const float* sums,
                         float* y,
                         int64_t begin,
                         int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { combine_row_parts(op, sums, y, begin, end); });
}
void reduce_columns_kernel(AnyStored<graph::ReduceForward> stored,
                           float* sums,
                           int64_t begin,
                           int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { reduce_columns(op, sums, begin, end); });
}
void combine_columns_kernel(AnyStored<graph::ReduceForward> stored,
                            const float* sums,
                            float* y,
                            int64_t begin,
                            int64_t end) {
  stored.with([&](const auto& op) HWY_ATTR { combine_column_parts(op, sums, y, begin, end); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(reduce_rows_kernel);
HWY_EXPORT(combine_rows_kernel);
HWY_EXPORT(reduce_columns_kernel);
HWY_EXPORT(combine_columns_kernel);

namespace {

// Results that are rounded are first computed in floats.
bool rounds(const graph::ReduceForward<float>& /*op*/) { return false; }
bool rounds(const graph::ReduceForward<BFloat16>& op) { return !op.wide; }

template <typename T>
int64_t sums_floats(const graph::ReduceForward<T>& op) {
  const int64_t parts =
      op.loops.by_rows() ? RowReduceParts(op.loops.reduced).count : ColumnParts(op.loops).count;
  return parts == 1 ? 0 : op.loops.kept.count * parts;
}

template <typename T>
size_t workspace_of(const graph::ReduceForward<T>& op) {
  return static_cast<size_t>(sums_floats(op) + (rounds(op) ? op.loops.kept.count : 0)) *
         sizeof(float);
}

size_t workspace_bytes(const graph::OpCall& call) {
  return stores_bf16(call) ? workspace_of(graph::ReduceForward<BFloat16>{call})
                           : workspace_of(graph::ReduceForward<float>{call});
}

template <typename T, typename Parts, typename Reduce, typename Combine>
void run_parts(const graph::ReduceForward<T>& op,
               const Parts& parts,
               int64_t results,  // groups of `columns`
               int64_t part_elements,
               int64_t columns,
               float* y,
               Reduce reduce,
               Combine combine) {
  float* const sums = parts.count == 1 ? y : op.workspace;
  parallel_for(results * parts.count, grain_rows(part_elements), [&](int64_t begin, int64_t end) {
    reduce(op, sums, begin, end);
  });
  if (parts.count == 1) return;
  parallel_for(results, grain_rows(parts.count * columns), [&](int64_t begin, int64_t end) {
    combine(op, sums, y, begin, end);
  });
}

template <typename T>
void run(const graph::ReduceForward<T>& op) {
  float* const y = rounds(op) ? op.workspace + sums_floats(op) : static_cast<float*>(op.y);
  if (op.loops.by_rows()) {
    const RowReduceParts parts(op.loops.reduced);
    run_parts(op,
              parts,
              op.loops.kept.count,
              parts.runs * parts.length,
              1,
              y,
              HWY_DYNAMIC_DISPATCH(reduce_rows_kernel),
              HWY_DYNAMIC_DISPATCH(combine_rows_kernel));
  } else {
    const ColumnParts parts(op.loops);
    run_parts(op,
              parts,
              parts.groups,
              std::min(parts.rows_each, parts.rows) * parts.columns,
              parts.columns,
              y,
              HWY_DYNAMIC_DISPATCH(reduce_columns_kernel),
              HWY_DYNAMIC_DISPATCH(combine_columns_kernel));
  }
  if (rounds(op)) round_floats(y, op.loops.kept.count, static_cast<BFloat16*>(op.y));
}

constexpr exec::Implementation kRows[] = {
    native_row<run<float>, run<BFloat16>, workspace_bytes>(graph::OpKind::kReduce, "simd")};

}  // namespace

constinit const exec::Implementations kCpuReduce = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
