// The backward pass of attention on tensor cores (flash_tiles.h), without atomics. Each weight is
// computed again as e^(score - log_sum_exp), in two kernels: a block of the first has queries and
// visits keys, a block of the second has keys and visits the queries of each head that shares them.
//
//   delta = the sum over a head of d_out out
//   d_score = weight (dropout(d_out v) - delta)
//   d_q = the sum over keys of d_score k / sqrt D
//   d_k = the sum over queries of d_score q / sqrt D
//   d_v = the sum over queries of dropout(weight) d_out
//
// The first kernel stores delta for the second. Weights and gradients of scores are rounded to T
// for the products with k, q and d_out.
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/flash_attention.h"
#include "runtime/cuda/ops/flash_launch.h"

namespace lockstep::cuda {
namespace {

using namespace flash;

template <typename T>
struct Arguments {
  graph::AttentionShape shape;
  Dropped dropout;
  Packed<const T> in;
  Tokens<const T> d_out, out;
  const int32_t* documents;  // (B, T) or null
  const float* log_sum_exp;  // (B, H, T)
  float* delta;              // (B, H, T)
  Packed<T> gradients;
  bool vectors;
};

// The dot products of rows `warp_first + group` and `warp_first + group + 8`, each by the four
// lanes that have its sums; 0 past the end.
template <typename T>
__device__ __forceinline__ void dots_of_rows(const HeadRows<const T>& a,
                                             const HeadRows<const T>& b,
                                             int warp_first,
                                             const Extent& extent,
                                             float (&dots)[2]) {
  constexpr int kVector = kVectorWidth<T>;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp_first + sum_row(2 * half);
    float dot = 0;
    for (int d = lane_of_warp() % 4 * kVector; row < extent.time && d < extent.head_size;
         d += 4 * kVector) {
      const T *const from_a = a.at(row) + d, *const from_b = b.at(row) + d;
      if (extent.vectors) {
        float values_a[kVector], values_b[kVector];
        load(from_a, values_a);
        load(from_b, values_b);
#pragma unroll
        for (int k = 0; k < kVector; ++k) dot = fmaf(values_a[k], values_b[k], dot);
      } else {
#pragma unroll 1
        for (int k = 0; k < kVector && d + k < extent.head_size; ++k)
          dot = fmaf(to_float(from_a[k]), to_float(from_b[k]), dot);
      }
    }
    dots[half] = over_columns<Sum>(dot);
  }
}

// A warp's rows are queries.
template <typename G>
__global__ void __launch_bounds__(G::kThreads, G::kMinBlocks)
    flash_query_kernel(Arguments<typename G::Element> a) {
  using T = typename G::Element;
  if (is_past_heads<G>(a.shape)) return;
  const Position at = position<G>(a.shape);
  const int head_of_keys = at.head / static_cast<int>(a.shape.group());
  const Extent extent = extent_of(a.shape, a.vectors);
  const Sight<G> sight = sight_of<G>(a.shape, at, a.documents);
  const HeadRows<const T> d_out = head_rows(a.d_out, a.shape, at.sample, at.head);
  float delta[2], base[2];  // base: log_sum_exp as a power of 2
  dots_of_rows(
      d_out, head_rows(a.out, a.shape, at.sample, at.head), at.warp_first(), extent, delta);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = at.warp_first() + sum_row(2 * half);
    const int64_t place = statistics(a.shape, at.sample, at.head) + row;
    base[half] = row < extent.time ? a.log_sum_exp[place] * kLog2E : 0;
    if (row < extent.time && lane_of_warp() % 4 == 0) a.delta[place] = delta[half];
  }
  OwnRows<G> own[2];
  read_own<G>({head_rows(a.in.q, a.shape, at.sample, at.head), d_out}, at.first, extent, own);
  const HeadRows<const T> k = head_rows(a.in.k, a.shape, at.sample, head_of_keys),
                          v = head_rows(a.in.v, a.shape, at.sample, head_of_keys);

  const float scale = softmax_scale(a.shape), power = scale * kLog2E;
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
    SumFragment scores[G::kTileFragments], d_scores[G::kTileFragments];
    multiply_rows<G>(own[0], tile.x, scores);
    multiply_rows<G>(own[1], tile.y, d_scores);
    if (step.masked) sight.mask(a.shape, at.warp_first(), step, tile.documents, scores);
    if (a.dropout.threshold != 0) {
      const int64_t number = at.sample * a.shape.heads + at.head;
      drop<G>(kept_pairs<G>(a.dropout, a.shape, number, at.warp_first(), step.begin), d_scores);
    }
#pragma unroll
    for (int n = 0; n < G::kTileFragments; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float weight = exp2_approx(fmaf(scores[n].at[i], power, -base[i / 2]));
        d_scores[n].at[i] = weight * fmaf(d_scores[n].at[i], a.dropout.factor, -delta[i / 2]);
      }
    }
    add_weighted<G>(d_scores, tile.x, sums);
  };
  for_each_tile<G>(sight, at.head, 1, copy, use);
  write_rows<G>(sums,
                {scale, scale},
                head_rows(a.gradients.q, a.shape, at.sample, at.head),
                at.first,
                extent);
}

// A warp's rows are keys and their values.
template <typename G>
__global__ void __launch_bounds__(G::kThreads, G::kMinBlocks)
    flash_key_kernel(Arguments<typename G::Element> a) {
  using T = typename G::Element;
  constexpr bool kKeys = G::kPass != Pass::kValues, kValues = G::kPass != Pass::kKeys;
  if (is_past_heads<G>(a.shape)) return;
  const Position at = position<G>(a.shape);
  const Extent extent = extent_of(a.shape, a.vectors);
  const Sight<G> sight = sight_of<G>(a.shape, at, a.documents);
  OwnRows<G> own[G::kOwnMatrices];
  if constexpr (kKeys) {
    read_own<G>({head_rows(a.in.k, a.shape, at.sample, at.head),
                 head_rows(a.in.v, a.shape, at.sample, at.head)},
                at.first,
                extent,
                own);
  } else {
    read_own<G>({head_rows(a.in.k, a.shape, at.sample, at.head)}, at.first, extent, own);
  }

  const float scale = softmax_scale(a.shape), power = scale * kLog2E;
  SumFragment sums_k[kKeys ? G::kWidth / 8 : 1] = {}, sums_v[kValues ? G::kWidth / 8 : 1] = {};
  const auto copy = [&](const Step& step, int buffer) {
    const Tile<T> tile = tile_in<G>(buffer);
    const int64_t numbers = statistics(a.shape, at.sample, step.head);
    copy_rows<G, G::kTileRows>(
        head_rows(a.in.q, a.shape, at.sample, step.head), step.begin, extent, tile.x);
    copy_rows<G, G::kTileRows>(
        head_rows(a.d_out, a.shape, at.sample, step.head), step.begin, extent, tile.y);
    copy_numbers<G>(a.log_sum_exp + numbers, step.begin, extent.time, tile.log_sum_exp);
    if constexpr (kKeys) copy_numbers<G>(a.delta + numbers, step.begin, extent.time, tile.delta);
    if (sight.documents != nullptr)
      copy_numbers<G>(sight.documents, step.begin, extent.time, tile.documents);
  };
  const auto use = [&](const Step& step, int buffer) {
    const Tile<T> tile = tile_in<G>(buffer);
    SumFragment weights[G::kTileFragments];
    multiply_rows<G>(own[0], tile.x, weights);
    if (step.masked) sight.mask(a.shape, at.warp_first(), step, tile.documents, weights);
#pragma unroll
    for (int n = 0; n < G::kTileFragments; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float base = tile.log_sum_exp[n * 8 + sum_column(i)] * kLog2E;
        weights[n].at[i] = exp2_approx(fmaf(weights[n].at[i], power, -base));
      }
    }
    uint32_t kept = ~0u;
    if (a.dropout.threshold != 0) {
      const int64_t number = at.sample * a.shape.heads + step.head;
      kept = kept_pairs<G>(a.dropout, a.shape, number, at.warp_first(), step.begin);
    }
    if constexpr (kKeys) {
      SumFragment d_scores[G::kTileFragments];
      multiply_rows<G>(own[1], tile.y, d_scores);
      if (a.dropout.threshold != 0) drop<G>(kept, d_scores);
#pragma unroll
      for (int n = 0; n < G::kTileFragments; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float delta = tile.delta[n * 8 + sum_column(i)];
          d_scores[n].at[i] = weights[n].at[i] * fmaf(d_scores[n].at[i], a.dropout.factor, -delta);
        }
      }
      add_weighted<G>(d_scores, tile.x, sums_k);
    }
    if constexpr (kValues) {
      if (a.dropout.threshold != 0) drop<G>(kept, weights);
      add_weighted<G>(weights, tile.y, sums_v);
    }
  };
  const int group = static_cast<int>(a.shape.group());
  for_each_tile<G>(sight, at.head * group, group, copy, use);
  if constexpr (kKeys) {
    write_rows<G>(sums_k,
                  {scale, scale},
                  head_rows(a.gradients.k, a.shape, at.sample, at.head),
                  at.first,
                  extent);
  }
  if constexpr (kValues) {
    write_rows<G>(sums_v,
                  {a.dropout.factor, a.dropout.factor},
                  head_rows(a.gradients.v, a.shape, at.sample, at.head),
                  at.first,
                  extent);
  }
}

}  // namespace

void flash_attention_backward(const graph::OpCall& call) {
  by_type<graph::AttentionBackward>(call, [&]<typename T>(const auto& op) {
    const int64_t width = op.shape.width();
    const Arguments<T> arguments = {
        .shape = op.shape,
        .dropout = Dropped::of(op.dropout, context_of(call).lane),
        .in = unpack(op.shape, op.qkv),
        .d_out = {op.d_y, width},
        .out = {op.y, width},
        .documents = op.documents,
        .log_sum_exp = op.log_sum_exp,
        .delta = reinterpret_cast<float*>(op.workspace),
        .gradients = unpack(op.shape, op.d_qkv),
        .vectors = is_vectorizable<T>(op.shape.head_size, {op.qkv, op.d_y, op.y, op.d_qkv})};
    with_width(op.shape.head_size, [&](auto width) {
      const auto start = [&]<typename G>(void (*kernel)(Arguments<T>), G) {
        launch_pass<G>(op.shape, stream_of(call), kernel, arguments);
      };
      using Queries = Tiling<T, width, Pass::kQueries>;
      start(flash_query_kernel<Queries>, Queries());
      if constexpr (width <= 128) {
        using Both = Tiling<T, width, Pass::kBoth>;
        start(flash_key_kernel<Both>, Both());
      } else {
        using Keys = Tiling<T, width, Pass::kKeys>;
        using Values = Tiling<T, width, Pass::kValues>;
        start(flash_key_kernel<Keys>, Keys());
        start(flash_key_kernel<Values>, Values());
      }
    });
  });
}

}  // namespace lockstep::cuda
