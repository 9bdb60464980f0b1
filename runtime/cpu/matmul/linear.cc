#include "runtime/cpu/matmul/linear.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/matmul/gemm_blocking.h"
#include "runtime/cpu/matmul/rounded_blocks.h"
#include "runtime/cpu/stored.h"

// Many rows are multiplied by gemm(), and the results are finished in place while they are in the
// cache. If they are bfloat16, they are computed block by block: the sums of a block stay in the
// cache, in floats, until they are complete.
//
// Fewer rows are computed transposed, y^T = w x^T: rows of w are broadcast, and the small x is
// packed once, so that the large w is streamed through once. A strip of y^T stays in the cache
// until its sums are complete; then it is transposed into y, and bias and activation are applied.
// With a few rows (text generation), most lanes of a vector would be empty, so they are multiplied
// the other way round, with w packed panel by panel.

#ifndef LOCKSTEP_RUNTIME_CPU_LINEAR_SCRATCH
#define LOCKSTEP_RUNTIME_CPU_LINEAR_SCRATCH
namespace lockstep::cpu {
constexpr int64_t kManyRows = 192;      // enough to pay for panels of w
constexpr int64_t kRowChunk = 512;      // rows of x packed at a time
constexpr int64_t kStripOutputs = 192;  // rows of y^T computed at a time
// Floats between rows of a strip of y^T: not a multiple of the page size, which would map all rows
// to the same cache sets.
constexpr int64_t kStripStride = kRowChunk + 16;

// Scratch memory of one worker, in floats: packed rows of w; a strip of y^T, with room for the
// outputs that pad its last vector; and packed x: one panel if panels are used once, otherwise all
// panels of a chunk of rows.
struct ForwardScratch {
  ForwardScratch(const graph::LinearShape& shape, WorkerGrid grid) {
    const int64_t outputs = grid.max_rows(shape.outputs);
    const int64_t depth_block = DepthBlocks(shape.inputs).length;
    packed_w = packed_rows_floats(std::min(outputs, kStripOutputs), depth_block);
    strip = (std::min(round_up(outputs, 16), kStripOutputs) + 16) * kStripStride;
    packed_x = outputs > kStripOutputs
                   ? std::min(grid.max_columns(shape.rows), kRowChunk) * shape.inputs
                   : kTwoPanels * depth_block;
  }
  int64_t floats() const { return packed_w + strip + packed_x; }

  int64_t packed_w, strip, packed_x;
};

inline WorkerGrid rounded_workers(const graph::LinearShape& s, int64_t threads) {
  return arrange_workers(threads, s.rows, s.outputs, s.inputs);
}
inline RoundedBlocks rounded_blocks(const graph::LinearShape& s, WorkerGrid grid) {
  return {s.rows, s.outputs, s.inputs, grid};
}
// Whether results in floats are computed by gemm(), and those that are rounded by blocks. If w is
// stored transposed, its panels are cheap to pack.
inline bool uses_gemm(const graph::LinearShape& s, bool transposed_w) {
  return transposed_w || s.rows >= std::min(s.outputs, kManyRows);
}
inline bool uses_rounded_blocks(const graph::LinearShape& s, bool transposed_w) {
  return (transposed_w || s.rows >= kManyRows) && s.inputs > 0;
}
}  // namespace lockstep::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/matmul/linear.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/gemm-inl.h"
#include "runtime/cpu/matmul/linear_finish-inl.h"
#include "runtime/cpu/matmul/rounded_blocks-inl.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Prefetches the residual of some outputs before their products are computed.
template <typename T>
HWY_INLINE void prefetch_residual(const LinearProduct<T>& op, Range outputs, Range rows) {
  if (op.epilogue.residual == nullptr) return;
  for (int64_t m = rows.begin; m < rows.end; ++m) {
    const T* const row = op.epilogue.residual + m * op.shape.outputs;
    constexpr auto kLine = static_cast<int64_t>(64 / sizeof(T));
    for (int64_t n = outputs.begin; n < outputs.end; n += kLine) __builtin_prefetch(row + n, 0, 2);
  }
}

// Writes the strip of y^T, outputs x rows, into y.
// f(access, sums, output, at): stores a vector of the result.
template <typename Finish>
HWY_INLINE void finish_strip(
    int64_t n_count, const float* strip, Range outputs, Range rows, Finish f) {
  int64_t m = rows.begin;
#if HWY_TARGET != HWY_SCALAR
  for (; m + 4 <= rows.end; m += 4) {
    for_each_vector(outputs.size(), [&](size_t i, auto access) HWY_ATTR {
      Vec sums[4];
      load_transposed_4(
          StridedRows<float>{strip + i * kStripStride, kStripStride}, m - rows.begin, sums);
      HWY_UNROLL(4)
      for (int64_t c = 0; c < 4; ++c) {
        const size_t at = (m + c) * n_count + outputs.begin + i;
        f(access, sums[c], outputs.begin + i, at);
      }
    });
  }
#endif
  for (; m < rows.end; ++m) {
    for_each_vector(outputs.size(), [&](size_t i, auto access) HWY_ATTR {
      alignas(64) float column[kVecLanes];
      for (size_t lane = 0; lane < kVecLanes; ++lane) {
        column[lane] = strip[(i + lane) * kStripStride + m - rows.begin];
      }
      const size_t output = outputs.begin + i;
      f(access, hn::Load(F32(), column), output, m * n_count + output);
    });
  }
}

template <typename T>
HWY_NOINLINE void finish_strip_with(const LinearProduct<T>& op,
                                    const float* strip,
                                    Range outputs,
                                    Range rows) {
  with_finish(op, [&](auto finish) HWY_ATTR {
    finish_strip(op.shape.outputs, strip, outputs, rows, finish);
  });
}

// Computes one worker's part of y^T: `outputs` x `rows`.
template <typename T>
HWY_NOINLINE void forward_rectangle(const LinearProduct<T>& op,
                                    Range outputs,
                                    Range rows,
                                    float* packed_w,
                                    float* strip,
                                    float* packed_x) {
  const int64_t depth = op.shape.inputs;
  GemmOperand x = op.x;
  x.transposed = !x.transposed;
  const DepthBlocks blocks(depth);
  const bool keep = outputs.size() > kStripOutputs;
  for (int64_t m = rows.begin; m < rows.end; m += kRowChunk) {
    const Range chunk{m, std::min(rows.end, m + kRowChunk)};
    for (int64_t n = outputs.begin; n < outputs.end; n += kStripOutputs) {
      const Range strip_outputs{n, std::min(outputs.end, n + kStripOutputs)};
      for (int64_t index = 0; index < blocks.count(); ++index) {
        const Range block = blocks.range(index);
        float* const buffer =
            packed_x + (keep ? block.begin * round_up(chunk.size(), kVecLanes) : 0);
        if (index + 1 == blocks.count()) prefetch_residual(op, strip_outputs, chunk);
        const Panels panels{.b = x.at(block.begin, m),
                            .ready = n > outputs.begin ? buffer : nullptr,
                            .buffer = buffer,
                            .keep = keep};
        GemmOperand w = op.w.at(n, block.begin);
        if (chunk.size() <= RoundedBlocks::kColumns)
          w = rows_for_few_columns(w, strip_outputs.size(), block.size(), packed_w, block.size());
        const FlushToZero flush(x.halves != nullptr && op.w.halves != nullptr);
        multiply_block(strip_outputs.size(),
                       chunk.size(),
                       block.size(),
                       w,
                       panels,
                       Result{strip, kStripStride, /*padded=*/true},
                       index > 0,
                       packed_w);
      }
      finish_strip_with(op, strip, strip_outputs, chunk);
    }
  }
}

// Finishes sums that are in y.
void finish_kernel(const LinearProduct<float>& op, Range rows, Range columns) {
  with_finish(op, [&](auto finish) HWY_ATTR {
    for (int64_t m = rows.begin; m < rows.end; ++m) {
      const size_t n = columns.begin, at = m * op.shape.outputs + n;
      for_each_vector(columns.size(), [&](size_t j, auto access) HWY_ATTR {
        finish(access, access.load(op.y + at + j), n + j, at + j);
      });
    }
  });
}

template <typename T>
void forward_transposed(const LinearProduct<T>& op, float* workspace) {
  const WorkerGrid grid =
      arrange_workers(compute_threads(), op.shape.outputs, op.shape.rows, op.shape.inputs);
  const ForwardScratch scratch(op.shape, grid);
  for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
    float* const mine = workspace + worker * scratch.floats();
    forward_rectangle(op,
                      share(op.shape.outputs, kRowUnit, worker / grid.columns, grid.rows),
                      share(op.shape.rows, kMaxPanel, worker % grid.columns, grid.columns),
                      mine,
                      mine + scratch.packed_w,
                      mine + scratch.packed_w + scratch.strip);
  });
}

void forward_rounded(const LinearProduct<BFloat16>& op, float* workspace) {
  const WorkerGrid grid = rounded_workers(op.shape, compute_threads());
  const RoundedBlocks sizes = rounded_blocks(op.shape, grid);
  GemmOperand w = op.w;
  w.transposed = !w.transposed;
  for_each_worker(grid.workers(), [&](int64_t worker) HWY_ATTR {
    multiply_rounded(
        sizes,
        share(op.shape.rows, kRowUnit, worker / grid.columns, grid.rows),
        share(op.shape.outputs, kMaxPanel, worker % grid.columns, grid.columns),
        /*terms=*/1,
        [&](int64_t) {
          return Operands{op.x, w};
        },
        workspace + worker * sizes.floats(),
        [&](const float* sums, Range rows, Range outputs) HWY_ATTR {
          with_finish(op, [&](auto finish) HWY_ATTR {
            for (int64_t m = rows.begin; m < rows.end; ++m, sums += sizes.sum_stride) {
              const size_t n = outputs.begin, at = m * op.shape.outputs + n;
              for_each_vector(outputs.size(), [&](size_t j, auto access) HWY_ATTR {
                finish(access, access.load(sums + j), n + j, at + j);
              });
            }
          });
        });
  });
}

// For few rows: y = x w^T with the rows of x broadcast.
HWY_NOINLINE void forward_few_rows_part(const LinearProduct<float>& op,
                                        Range outputs,
                                        float* buffer) {
  const auto [m_count, k_count, n_count] = op.shape;
  GemmOperand w = op.w;
  w.transposed = !w.transposed;
  const DepthBlocks blocks(k_count);
  for (int64_t n = outputs.begin; n < outputs.end; n += kPanel) {
    const int64_t columns = std::min<int64_t>(kPanel, outputs.end - n);
    for (int64_t index = 0; index < blocks.count(); ++index) {
      const Range block = blocks.range(index);
      multiply_block(m_count,
                     columns,
                     block.size(),
                     op.x.at(0, block.begin),
                     Panels{.b = w.at(block.begin, n), .buffer = buffer},
                     Result{op.y + n, static_cast<size_t>(n_count), /*padded=*/false},
                     index > 0,
                     nullptr);
    }
    with_finish(op, [&](auto finish) HWY_ATTR {
      for (int64_t m = 0; m < m_count; ++m) {
        for_each_vector(columns, [&](size_t j, auto access) HWY_ATTR {
          const size_t at = m * n_count + n + j;
          finish(access, access.load(op.y + at), n + j, at);
        });
      }
    });
  }
}

void forward_few_rows(const LinearProduct<float>& op, float* workspace) {
  const int64_t workers = threads_worth(
      compute_threads(), product_work(op.shape.rows, op.shape.outputs, op.shape.inputs));
  for_each_worker(workers, [&](int64_t worker) HWY_ATTR {
    forward_few_rows_part(op,
                          share(op.shape.outputs, kMaxPanel, worker, workers),
                          workspace + worker * kMaxPanel * DepthBlocks(op.shape.inputs).length);
  });
}

void linear_forward_kernel(AnyStored<LinearProduct> stored, float* workspace) {
  stored.with([&]<typename T>(const LinearProduct<T>& op) HWY_ATTR {
    if constexpr (std::is_same_v<T, float>) {
      const bool widens = op.x.halves != nullptr || op.w.halves != nullptr;
      if (op.shape.rows <= static_cast<int64_t>(kVecLanes / 2) && !widens)
        return forward_few_rows(op, workspace);
    } else {
      if (uses_rounded_blocks(op.shape, op.w.transposed)) return forward_rounded(op, workspace);
    }
    forward_transposed(op, workspace);
  });
}

// Sums of some columns of d_y, in vectors of columns.
template <typename T>
HWY_INLINE void backward_bias(const graph::LinearBackward<T>& op, Range columns) {
  constexpr int64_t kTogether = 8;  // vectors summed in one pass over the rows
  const int64_t rows = op.shape.rows, stride = op.shape.outputs;
  const bool accumulate = op.accumulate_bias;
  const T* const d_y = op.d_y;
  float* const d_bias = op.d_bias;
  int64_t n = columns.begin;
  for (; n + kTogether * static_cast<int64_t>(kVecLanes) <= columns.end;
       n += kTogether * kVecLanes) {
    Vec sum[kTogether];
    HWY_UNROLL(8)
    for (int64_t v = 0; v < kTogether; ++v) {
      sum[v] = accumulate ? hn::LoadU(F32(), d_bias + n + v * kVecLanes) : hn::Zero(F32());
    }
    for (int64_t m = 0; m < rows; ++m) {
      HWY_UNROLL(8)
      for (int64_t v = 0; v < kTogether; ++v) {
        sum[v] = hn::Add(sum[v], FullVector().load(d_y + m * stride + n + v * kVecLanes));
      }
    }
    HWY_UNROLL(8)
    for (int64_t v = 0; v < kTogether; ++v) {
      hn::StoreU(sum[v], F32(), d_bias + n + v * kVecLanes);
    }
  }
  for_each_vector(columns.end - n, [&](size_t j, auto access) HWY_ATTR {
    Vec sum = accumulate ? access.load(d_bias + n + j) : hn::Zero(F32());
    for (int64_t m = 0; m < rows; ++m) sum = hn::Add(sum, access.load(d_y + m * stride + n + j));
    access.store(sum, d_bias + n + j);
  });
}

void backward_bias_kernel(AnyStored<graph::LinearBackward> stored, Range columns) {
  stored.with([&](const auto& op) HWY_ATTR { backward_bias(op, columns); });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(linear_forward_kernel);
HWY_EXPORT(backward_bias_kernel);
HWY_EXPORT(finish_kernel);

namespace {
constexpr int64_t kBiasColumns = 128;  // min columns per thread
}

template <typename T>
int64_t linear_workspace_bytes(const graph::LinearShape& shape, int threads) {
  const auto [m, k, n] = shape;
  int64_t forward = 0;  // in floats
  const bool transposes =
      std::is_same_v<T, float> ? !uses_gemm(shape, false) : !uses_rounded_blocks(shape, false);
  if (transposes) {
    const WorkerGrid grid = arrange_workers(threads, n, m, k);
    forward = grid.workers() * ForwardScratch(shape, grid).floats();
  }
  if (!std::is_same_v<T, float>) {
    const WorkerGrid grid = rounded_workers(shape, threads);
    forward = std::max(forward, grid.workers() * rounded_blocks(shape, grid).floats());
  }
  return std::max({forward * static_cast<int64_t>(sizeof(float)),
                   gemm_workspace_bytes(m, n, k, threads),
                   gemm_workspace_bytes(m, k, n, threads),
                   gemm_workspace_bytes(n, k, m, threads)});
}
template int64_t linear_workspace_bytes<float>(const graph::LinearShape&, int);
template int64_t linear_workspace_bytes<BFloat16>(const graph::LinearShape&, int);

void finish_sums(const LinearProduct<float>& op, Range rows, Range columns) {
  if (op.finishes()) HWY_DYNAMIC_DISPATCH(finish_kernel)(op, rows, columns);
}

namespace {
void forward_by_gemm(const LinearProduct<float>& op, void* workspace) {
  const auto [m, k, n] = op.shape;
  GemmOperand b = op.w;
  b.transposed = !b.transposed;
  const Finish finish = {.run =
                             [](const void* of, Range rows, Range columns) {
                               finish_sums(
                                   *static_cast<const LinearProduct<float>*>(of), rows, columns);
                             },
                         .of = &op,
                         .reads = {op.saved != nullptr ? op.saved : op.epilogue.residual, n},
                         .writes = {op.pre, n}};
  const Gemm product = {
      .rows = m, .columns = n, .depth = k, .a = op.x, .b = b, .c = op.y, .c_stride = n};
  if (!op.finishes()) return gemm(product, workspace);
  gemm_finished(product, finish, workspace);
}
}  // namespace

template <typename T>
void linear_forward(const LinearProduct<T>& op, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  if constexpr (std::is_same_v<T, float>) {
    if (uses_gemm(op.shape, op.w.transposed)) return forward_by_gemm(op, workspace);
  }
  HWY_DYNAMIC_DISPATCH(linear_forward_kernel)(op, static_cast<float*>(workspace));
}
template void linear_forward(const LinearProduct<float>& op, void* workspace);
template void linear_forward(const LinearProduct<BFloat16>& op, void* workspace);

template <typename T>
Gemm product_for_weight(const graph::LinearBackward<T>& op) {
  const auto [m, k, n] = op.shape;
  return {.rows = n,
          .columns = k,
          .depth = m,
          .a = {op.d_y, n, /*transposed=*/true},
          .b = {op.x, k},
          .c = op.d_weight,
          .c_stride = k,
          .accumulate = op.accumulate_weight};
}
template Gemm product_for_weight(const graph::LinearBackward<float>& op);
template Gemm product_for_weight(const graph::LinearBackward<BFloat16>& op);

void linear_backward_weight(const graph::LinearBackward<float>& op) {
  gemm(product_for_weight(op), op.workspace);
}

template <typename T>
void linear_backward_bias(const graph::LinearBackward<T>& op) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(backward_bias_kernel);
  parallel_for(op.shape.outputs,
               std::max(kBiasColumns, grain_rows(op.shape.rows)),
               [&](int64_t begin, int64_t end) {
                 kernel(op, Range{begin, end});
               });
}
template void linear_backward_bias(const graph::LinearBackward<float>& op);
template void linear_backward_bias(const graph::LinearBackward<BFloat16>& op);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
