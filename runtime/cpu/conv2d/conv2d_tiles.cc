#include "runtime/cpu/conv2d/conv2d_tiles.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/error.h"
#include "runtime/base/threads.h"
#include "runtime/cpu/conv2d/conv2d_bf16x3_operands.h"

// A worker computes its pixels in blocks. The sums of a block stay in the cache, in floats, until
// they are complete.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/conv2d/conv2d_tiles.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/matmul/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// The results of some pixels and columns from their sums, which are at sums[i * stride + column]
// for pixel i of `pixels`.
void finish_gather_kernel(
    const Gather<BFloat16>& g, const float* sums, int64_t stride, Range pixels, Range columns) {
  with_activation(g.epilogue.activation, [&](auto kind) HWY_ATTR {
    GatherPixel pixel(g, pixels.begin);
    for (int64_t i = 0; i < pixels.size(); ++i, pixel.next(g)) {
      const float* const from = sums + i * stride + columns.begin;
      const int64_t at = pixel.result(g) + columns.begin;
      for_each_vector(static_cast<size_t>(columns.size()), [&](size_t j, auto access) HWY_ATTR {
        const auto here = at + static_cast<int64_t>(j);
        const auto column = static_cast<size_t>(columns.begin) + j;
        access.store(finished<decltype(kind)::value>(
                         g.epilogue, access, access.load(from + j), column, here),
                     g.c + here);
      });
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(finish_gather_kernel);

namespace tiles {
namespace {

using Number = BFloat16;

// A worker's blocks of pixels, and its scratch memory in bytes: the sums, then that of
// multiply_rectangle().
struct GatherBlocks {
  GatherBlocks(const Gather<Number>& g, WorkerGrid grid)
      : columns(std::min(round_up(g.columns, kTileEdge), grid.max_columns(g.columns))),
        stride(columns + 16),  // not a multiple of the page size
        pixels(std::min(grid.max_rows(g.pixels(), kSplitRowUnit),
                        round_up(ceil_div(kSums, std::max<int64_t>(1, stride)), kSplitRowUnit))),
        sums_bytes(round_up(pixels * stride * static_cast<int64_t>(sizeof(float)), 64)),
        bytes(sums_bytes + SplitScratch<Number>(pixels, columns, gather_chunks(g)).bytes()) {}

  // Enough to pay for packing the weights anew for each block.
  static constexpr int64_t kSums = int64_t{1} << 19;

  int64_t columns;
  int64_t stride;  // floats between the sums of two pixels
  int64_t pixels;  // of a block
  int64_t sums_bytes, bytes;
};

// The sums of a block, whose pixels begin at `first` and whose columns begin at `first_column`.
struct BlockSums {
  float* row(int64_t pixel) const { return sums + (pixel - first) * pixel_stride - first_column; }
  int64_t stride() const { return pixel_stride; }
  void finish(Range pixels, Range columns) const {
    HWY_DYNAMIC_DISPATCH(finish_gather_kernel)(g, row(pixels.begin), pixel_stride, pixels, columns);
  }
  const Gather<Number>& g;
  float* sums;
  int64_t pixel_stride, first, first_column;
};

WorkerGrid workers_of(const Gather<Number>& g, int64_t threads) {
  return split_workers(threads, g.pixels(), g.columns, gather_chunks(g));
}

void run(const Gather<Number>& g, void* workspace) {
  const int64_t chunks = gather_chunks(g);
  if (g.pixels() == 0) return;
  if (chunks == 0) {
    for (int64_t i = 0; i < g.pixels(); ++i)
      std::memset(
          g.c + GatherPixel(g, i).result(g), 0, static_cast<size_t>(g.columns) * sizeof(Number));
    return;
  }
  const WorkerGrid grid = workers_of(g, compute_threads());
  const GatherBlocks blocks(g, grid);
  for_each_worker(grid.workers(), [&](int64_t worker) {
    auto* const scratch = static_cast<std::byte*>(workspace) + worker * blocks.bytes;
    const Range pixels = share(g.pixels(), kSplitRowUnit, worker / grid.columns, grid.rows);
    const Range columns = share(g.columns, kSplitPanel, worker % grid.columns, grid.columns);
    for (int64_t p = pixels.begin; p < pixels.end; p += blocks.pixels) {
      multiply_rectangle(
          GatherA<Number>{g},
          GatherB<Number>{g},
          BlockSums{g, reinterpret_cast<float*>(scratch), blocks.stride, p, columns.begin},
          Range{p, std::min(pixels.end, p + blocks.pixels)},
          columns,
          chunks,
          /*accumulate=*/false,
          reinterpret_cast<uint16_t*>(scratch + blocks.sums_bytes));
    }
  });
}

int64_t gather_bytes(const Gather<Number>& g, int threads) {
  if (g.pixels() == 0 || gather_chunks(g) == 0) return 0;
  const WorkerGrid grid = workers_of(g, threads);
  return grid.workers() * GatherBlocks(g, grid).bytes;
}

}  // namespace

bool supports(const graph::Conv2dShape& s) {
  return s.group_channels() % kTileEdge == 0 && s.group_outputs() >= kTileEdge;
}

int64_t conv2d_forward_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  Conv2dProduct<Number> op{};
  op.shape = s;
  return gather_bytes(forward_gather(op), threads);
}

int64_t conv2d_workspace_bytes(const graph::Conv2dShape& s, int threads) {
  int64_t bytes = tiles::conv2d_forward_workspace_bytes(s, threads);
  const graph::Conv2dBackward<Number> backward = {
      .shape = s, .accumulate_weight = false, .accumulate_bias = false};
  for_each_phase(s, [&](const GatherAxis& h, const GatherAxis& w) {
    bytes = std::max(bytes, gather_bytes(backward_gather(backward, h, w), threads));
  });
  return std::max(bytes, weight_workspace_bytes<Number>(s, threads));
}

void conv2d_forward(const Conv2dProduct<Number>& op, void* workspace) {
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(workspace) % 64 == 0);
  const graph::Conv2dShape& s = op.shape;
  for_each_group(s, forward_gather(op), [&](const Gather<Number>& g) { run(g, workspace); });
}

void conv2d_backward_input(const graph::Conv2dBackward<Number>& op) {
  const graph::Conv2dShape& s = op.shape;
  for_each_phase(s, [&](const GatherAxis& axis_h, const GatherAxis& axis_w) {
    const Gather<Number> first = backward_gather(op, axis_h, axis_w);
    for_each_group(s, first, [&](const Gather<Number>& g) { run(g, op.workspace); });
  });
}

void conv2d_backward_weight(const graph::Conv2dBackward<Number>& op) { multiply_for_weight(op); }

}  // namespace tiles
}  // namespace lockstep::cpu
#endif  // HWY_ONCE
