// The forward pass of attention on tensor cores: FlashAttention-2 (Dao 2023) by mma.sync. A warp
// has 16 queries. For each tile of keys it multiplies scores, keeps the largest score of each query
// so far, and adds the weighted values (flash_tiles.h has the division of the work):
//
//   new largest = max(largest, max of scores); shrink = e^(largest - new largest)
//   weights = e^(scores - new largest)
//   denominator = denominator shrink + sum of weights, sum = sum shrink + dropout(weights) v
//
// At the end out = sum / denominator and log_sum_exp = largest + log(denominator). Exponentials are
// powers of 2, with log2(e) in the factor of the scores. Weights are rounded to T for the product
// with v; their sum is that of the weights before rounding. Each lane sums its own columns, the
// four lanes of a query are added once, at the end.
#include "runtime/cuda/ops/flash_attention.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/flash_launch.h"

namespace lockstep::cuda {
namespace {

using namespace flash;

template <typename T>
struct Arguments {
  graph::AttentionShape shape;
  Dropped dropout;
  Packed<const T> in;
  const int32_t* documents;  // (B, T) or null
  Tokens<T> out;
  float* log_sum_exp;  // (B, H, T)
  bool vectors;
};

template <typename G>
__global__ void __launch_bounds__(G::kThreads, G::kMinBlocks)
    flash_kernel(Arguments<typename G::Element> a) {
  using T = typename G::Element;
  if (is_past_heads<G>(a.shape)) return;
  const Position at = position<G>(a.shape);
  const int head_of_keys = at.head / static_cast<int>(a.shape.group());
  const Extent extent = extent_of(a.shape, a.vectors);
  const Sight<G> sight = sight_of<G>(a.shape, at, a.documents);
  OwnRows<G> own[1];
  read_own<G>({head_rows(a.in.q, a.shape, at.sample, at.head)}, at.first, extent, own);
  const HeadRows<const T> k = head_rows(a.in.k, a.shape, at.sample, head_of_keys),
                          v = head_rows(a.in.v, a.shape, at.sample, head_of_keys);

  const float scale = softmax_scale(a.shape), power = scale * kLog2E;
  float largest[2] = {-std::numeric_limits<float>::infinity(),
                      -std::numeric_limits<float>::infinity()};
  float denominator[2] = {};
  SumFragment sums[G::kWidth / 8] = {};
  const auto copy = [&](const Step& step, int buffer) {
    const Tile<T> tile = tile_in<G>(buffer);
    copy_rows<G, G::kTileRows>(k, step.begin, extent, tile.x);
    copy_rows<G, G::kTileRows>(v, step.begin, extent, tile.y);
    if (sight.documents != nullptr)
      copy_numbers<G>(sight.documents, step.begin, extent.time, tile.documents);
  };
  const auto use = [&](const Step& step, int buffer) {
    const Tile<T> tile = tile_in<G>(buffer);
    SumFragment scores[G::kTileFragments];
    multiply_rows<G>(own[0], tile.x, scores);
    if (step.masked) sight.mask(a.shape, at.warp_first(), step, tile.documents, scores);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = largest[half];
#pragma unroll
      for (int n = 0; n < G::kTileFragments; ++n)
        top = fmaxf(fmaxf(scores[n].at[2 * half], scores[n].at[2 * half + 1]), top);
      top = over_columns<Max>(top);
      // A query that has seen nothing yet: every power is 0.
      const float base = top == -std::numeric_limits<float>::infinity() ? 0 : top * power;
      const float shrink = exp2_approx(fmaf(largest[half], power, -base));
      largest[half] = top;
      denominator[half] *= shrink;
#pragma unroll
      for (int n = 0; n < G::kTileFragments; ++n) {
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n].at[i] = exp2_approx(fmaf(scores[n].at[i], power, -base));
          denominator[half] += scores[n].at[i];
        }
      }
#pragma unroll
      for (int n = 0; n < G::kWidth / 8; ++n) {
        sums[n].at[2 * half] *= shrink;
        sums[n].at[2 * half + 1] *= shrink;
      }
    }
    if (a.dropout.threshold != 0) {
      const int64_t number = at.sample * a.shape.heads + at.head;
      drop<G>(kept_pairs<G>(a.dropout, a.shape, number, at.warp_first(), step.begin), scores);
    }
    add_weighted<G>(scores, tile.y, sums);
  };
  for_each_tile<G>(sight, at.head, 1, copy, use);

  float factors[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = over_columns<Sum>(denominator[half]);
    const int row = at.warp_first() + sum_row(2 * half);
    factors[half] = total == 0 ? 0 : a.dropout.factor / total;  // 0 if it has seen nothing
    if (row < extent.time && lane_of_warp() % 4 == 0)
      a.log_sum_exp[statistics(a.shape, at.sample, at.head) + row] =
          total == 0 ? 0 : fmaf(largest[half], scale, logf(total));
  }
  write_rows<G>(sums, factors, head_rows(a.out, a.shape, at.sample, at.head), at.first, extent);
}

}  // namespace

void flash_attention(const graph::OpCall& call) {
  by_type<graph::AttentionForward>(call, [&]<typename T>(const auto& op) {
    const Arguments<T> arguments = {
        .shape = op.shape,
        .dropout = Dropped::of(op.dropout, context_of(call).lane),
        .in = unpack(op.shape, op.qkv),
        .documents = op.documents,
        .out = {op.y, op.shape.width()},
        .log_sum_exp = op.log_sum_exp,
        .vectors = is_vectorizable<T>(op.shape.head_size, {op.qkv, op.y})};
    with_width(op.shape.head_size, [&](auto width) {
      using G = Tiling<T, width, Pass::kOut>;
      launch_pass<G>(op.shape, stream_of(call), flash_kernel<G>, arguments);
    });
  });
}

}  // namespace lockstep::cuda
