#include "runtime/cpu/ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/threads.h"
#include "runtime/cpu/grain_size.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/graph/ops/batch_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/batch_norm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_BATCH_NORM_CC
#define LOCKSTEP_RUNTIME_CPU_BATCH_NORM_CC
namespace lockstep::cpu {

// What is known of each channel once the statistics are. (channels) each.
struct ChannelFactors {
  const float* mean;
  const float* scale;  // gamma / sqrt(variance + epsilon)
  const float* beta;
  const float* slope;  // backward: d_x = scale * g + (x - mean) * slope + offset
  const float* offset;
};

// How backward learns what the activation passed.
enum class Mask { kAll, kFromInput, kFromOutput };

}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Rows that are added up in registers, as a tree, before they meet the sums in memory: a chain of
// eight additions would wait for each other, and each row would load and store the sums.
constexpr int64_t kTreeRows = 8;

HWY_INLINE Vec tree_sum(const Vec (&v)[kTreeRows]) {
  return hn::Add(hn::Add(hn::Add(v[0], v[1]), hn::Add(v[2], v[3])),
                 hn::Add(hn::Add(v[4], v[5]), hn::Add(v[6], v[7])));
}
HWY_INLINE Vec tree_product_sum(const Vec (&a)[kTreeRows], const Vec (&b)[kTreeRows]) {
  Vec pairs[4];
  for (size_t k = 0; k < 4; ++k)
    pairs[k] = hn::MulAdd(a[2 * k], b[2 * k], hn::Mul(a[2 * k + 1], b[2 * k + 1]));
  return hn::Add(hn::Add(pairs[0], pairs[1]), hn::Add(pairs[2], pairs[3]));
}

// Sums of rows [begin, end): of the distances from row `begin`, and of their squares.
void statistics_kernel(
    const float* x, int64_t channels, int64_t begin, int64_t end, float* sums, float* squares) {
  const float* const first = x + begin * channels;
  std::fill_n(sums, channels, 0.0f);
  std::fill_n(squares, channels, 0.0f);
  int64_t row = begin;
  for (; row + kTreeRows <= end; row += kTreeRows) {
    const float* const rows = x + row * channels;
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec shift = access.load(first + c);
      Vec d[kTreeRows];
      for (int64_t k = 0; k < kTreeRows; ++k)
        d[k] = hn::Sub(access.load(rows + k * channels + c), shift);
      access.store(hn::Add(access.load(sums + c), tree_sum(d)), sums + c);
      access.store(hn::Add(access.load(squares + c), tree_product_sum(d, d)), squares + c);
    });
  }
  for (; row < end; ++row) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const Vec d = hn::Sub(access.load(x + row * channels + c), access.load(first + c));
      access.store(hn::Add(access.load(sums + c), d), sums + c);
      access.store(hn::MulAdd(d, d, access.load(squares + c)), squares + c);
    });
  }
}

// Blocks' sums to mean and variance of channels [begin, end), by the pairwise update of Chan et
// al.: the distance between two means enters once, in double precision.
void combine_statistics_kernel(const float* x,
                               const float* partial,  // (blocks, 2, channels)
                               double* scratch,       // (2, channels)
                               int64_t rows,
                               int64_t block_rows,
                               int64_t channels,
                               int64_t begin,
                               int64_t end,
                               float* mean,
                               float* variance) {
  double* const means = scratch;
  double* const squares = scratch + channels;
  for (int64_t first = 0; first < rows; first += block_rows) {
    const float* const sums = partial + first / block_rows * 2 * channels;
    const float* const shift = x + first * channels;
    const auto n = static_cast<double>(std::min(block_rows, rows - first));
    const auto before = static_cast<double>(first);
    const double share = n / (before + n), weight = before * share, inverse = 1 / n;
    for (int64_t c = begin; c < end; ++c) {
      const double sum = sums[c], block_mean = shift[c] + sum * inverse;
      const double block_squares = sums[channels + c] - sum * sum * inverse;
      const double old_mean = first == 0 ? 0.0 : means[c];
      const double old_squares = first == 0 ? 0.0 : squares[c];
      const double distance = block_mean - old_mean;
      means[c] = old_mean + distance * share;
      squares[c] = old_squares + block_squares + distance * distance * weight;
    }
  }
  for (int64_t c = begin; c < end; ++c) {
    mean[c] = static_cast<float>(means[c]);
    // Rounding alone can make it less than zero. NaN stays.
    const double v = squares[c] / static_cast<double>(rows);
    variance[c] = static_cast<float>(v < 0 ? 0 : v);
  }
}

template <bool kRelu, bool kDelta, int kRows>
HWY_INLINE void forward_rows(const BatchNormForward& op, const ChannelFactors& at, int64_t row) {
  const int64_t channels = op.channels;
  const float* const x = op.x + row * channels;
  const float* const delta = kDelta ? op.delta + row * channels : nullptr;
  float* const y = op.y + row * channels;
  for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
    const Vec mean = access.load(at.mean + c), scale = access.load(at.scale + c);
    const Vec beta = access.load(at.beta + c);
    for (int k = 0; k < kRows; ++k) {
      const int64_t i = k * channels + static_cast<int64_t>(c);
      Vec v = hn::MulAdd(hn::Sub(access.load(x + i), mean), scale, beta);
      if constexpr (kDelta) v = hn::Add(v, access.load(delta + i));
      if constexpr (kRelu) v = at_least(0.0f, v);
      access.store(v, y + i);
    }
  });
}

template <bool kRelu, bool kDelta>
void forward_range(const BatchNormForward& op,
                   const ChannelFactors& at,
                   int64_t begin,
                   int64_t end) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) forward_rows<kRelu, kDelta, 4>(op, at, row);
  for (; row < end; ++row) forward_rows<kRelu, kDelta, 1>(op, at, row);
}

void forward_kernel(const BatchNormForward& op,
                    const ChannelFactors& at,
                    int64_t begin,
                    int64_t end) {
  const bool delta = op.delta != nullptr;
  if (op.relu)
    return (delta ? forward_range<true, true> : forward_range<true, false>)(op, at, begin, end);
  return (delta ? forward_range<false, true> : forward_range<false, false>)(op, at, begin, end);
}

// g and x - mean of element i, which is of channel c.
struct Passed {
  Vec g, centred;
};
template <Mask kMask, typename Access>
HWY_INLINE Passed
passed(const BatchNormBackward& op, const ChannelFactors& at, int64_t i, size_t c, Access access) {
  const Vec d_y = access.load(op.d_y + i);
  const Vec centred = hn::Sub(access.load(op.x + i), access.load(at.mean + c));
  if constexpr (kMask == Mask::kAll) {
    return {d_y, centred};
  } else if constexpr (kMask == Mask::kFromOutput) {
    const Vec y = access.load(op.y + i);
    return {hn::IfThenElseZero(hn::Gt(y, hn::Zero(F32())), d_y), centred};
  } else {
    // The very arithmetic of the forward pass.
    const Vec y = hn::MulAdd(centred, access.load(at.scale + c), access.load(at.beta + c));
    return {hn::IfThenElseZero(hn::Gt(y, hn::Zero(F32())), d_y), centred};
  }
}

// Sums over rows [begin, end) of g and of g (x - mean); writes d_delta.
template <Mask kMask>
void backward_sums_range(const BatchNormBackward& op,
                         const ChannelFactors& at,
                         int64_t begin,
                         int64_t end,
                         float* sums,
                         float* products) {
  const int64_t channels = op.channels;
  std::fill_n(sums, channels, 0.0f);
  std::fill_n(products, channels, 0.0f);
  int64_t row = begin;
  for (; row + kTreeRows <= end; row += kTreeRows) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      Vec g[kTreeRows], centred[kTreeRows];
      for (int64_t k = 0; k < kTreeRows; ++k) {
        const int64_t i = (row + k) * channels + static_cast<int64_t>(c);
        const Passed p = passed<kMask>(op, at, i, c, access);
        g[k] = p.g;
        centred[k] = access.keep(p.centred);
        if (op.d_delta != nullptr) access.store(p.g, op.d_delta + i);
      }
      access.store(hn::Add(access.load(sums + c), tree_sum(g)), sums + c);
      access.store(hn::Add(access.load(products + c), tree_product_sum(g, centred)), products + c);
    });
  }
  for (; row < end; ++row) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const int64_t i = row * channels + static_cast<int64_t>(c);
      const Passed p = passed<kMask>(op, at, i, c, access);
      if (op.d_delta != nullptr) access.store(p.g, op.d_delta + i);
      access.store(hn::Add(access.load(sums + c), p.g), sums + c);
      access.store(hn::MulAdd(p.g, p.centred, access.load(products + c)), products + c);
    });
  }
}

void backward_sums_kernel(const BatchNormBackward& op,
                          const ChannelFactors& at,
                          Mask mask,
                          int64_t begin,
                          int64_t end,
                          float* sums,
                          float* products) {
  switch (mask) {
    case Mask::kAll: return backward_sums_range<Mask::kAll>(op, at, begin, end, sums, products);
    case Mask::kFromInput:
      return backward_sums_range<Mask::kFromInput>(op, at, begin, end, sums, products);
    case Mask::kFromOutput:
      return backward_sums_range<Mask::kFromOutput>(op, at, begin, end, sums, products);
  }
}

template <Mask kMask, int kRows>
HWY_INLINE void backward_rows(const BatchNormBackward& op, const ChannelFactors& at, int64_t row) {
  for_each_vector(op.channels, [&](size_t c, auto access) HWY_ATTR {
    const Vec scale = access.load(at.scale + c);
    const Vec slope = access.load(at.slope + c), offset = access.load(at.offset + c);
    for (int k = 0; k < kRows; ++k) {
      const int64_t i = (row + k) * op.channels + static_cast<int64_t>(c);
      const Passed p = passed<kMask>(op, at, i, c, access);
      access.store(hn::MulAdd(p.g, scale, hn::MulAdd(p.centred, slope, offset)), op.d_x + i);
    }
  });
}

template <Mask kMask>
void backward_range(const BatchNormBackward& op,
                    const ChannelFactors& at,
                    int64_t begin,
                    int64_t end) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) backward_rows<kMask, 4>(op, at, row);
  for (; row < end; ++row) backward_rows<kMask, 1>(op, at, row);
}

void backward_kernel(
    const BatchNormBackward& op, const ChannelFactors& at, Mask mask, int64_t begin, int64_t end) {
  switch (mask) {
    case Mask::kAll: return backward_range<Mask::kAll>(op, at, begin, end);
    case Mask::kFromInput: return backward_range<Mask::kFromInput>(op, at, begin, end);
    case Mask::kFromOutput: return backward_range<Mask::kFromOutput>(op, at, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(statistics_kernel);
HWY_EXPORT(combine_statistics_kernel);
HWY_EXPORT(forward_kernel);
HWY_EXPORT(backward_sums_kernel);
HWY_EXPORT(backward_kernel);

namespace {

// Rows are split into at most kMaxBlocks blocks, by their number alone.
constexpr int64_t kMaxBlocks = 128;
constexpr int64_t kMinBlockRows = 64;  // fewer, and the blocks' sums cost as much as the rows

int64_t block_rows(int64_t rows) {
  return std::max(kMinBlockRows, (rows + kMaxBlocks - 1) / kMaxBlocks);
}
int64_t block_count(int64_t rows) { return (rows + block_rows(rows) - 1) / block_rows(rows); }

// The workspace: channel-wise values in double precision, factors, and the blocks' partial sums.
struct Workspace {
  double* scratch;                // (2, channels)
  float *scale, *slope, *offset;  // (channels) each
  float* partial;                 // (blocks, 2, channels)
  Workspace(void* memory, int64_t channels)
      : scratch(static_cast<double*>(memory)),
        scale(reinterpret_cast<float*>(scratch + 2 * channels)),
        slope(scale + channels),
        offset(slope + channels),
        partial(offset + channels) {}
};

double inverse_deviation(float variance, float epsilon) {
  return 1 / std::sqrt(static_cast<double>(variance) + static_cast<double>(epsilon));
}

// Calls body(block, first row, end of its rows) for each block.
template <typename Body>
void for_each_block(int64_t rows, int64_t channels, Body&& body) {
  const int64_t each = block_rows(rows);
  parallel_for(block_count(rows), grain_rows(each * channels), [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block)
      body(block, block * each, std::min(rows, (block + 1) * each));
  });
}

}  // namespace

size_t batch_norm_workspace_bytes(int64_t rows, int64_t channels) {
  const auto floats =
      static_cast<size_t>(channels) * (3 + 2 * static_cast<size_t>(block_count(rows)));
  return 2 * static_cast<size_t>(channels) * sizeof(double) + floats * sizeof(float);
}

void batch_norm_scale(
    int64_t channels, const float* gamma, const float* variance, float epsilon, float* scale) {
  for (int64_t c = 0; c < channels; ++c)
    scale[c] = static_cast<float>(gamma[c] * inverse_deviation(variance[c], epsilon));
}

void batch_norm_statistics(
    int64_t rows, int64_t channels, const float* x, float* mean, float* variance, void* workspace) {
  const Workspace at(workspace, channels);
  const auto sums = HWY_DYNAMIC_DISPATCH(statistics_kernel);
  for_each_block(rows, channels, [&](int64_t block, int64_t begin, int64_t end) {
    float* const partial = at.partial + block * 2 * channels;
    sums(x, channels, begin, end, partial, partial + channels);
  });
  const auto combine = HWY_DYNAMIC_DISPATCH(combine_statistics_kernel);
  parallel_for(channels, grain_rows(2 * block_count(rows)), [&](int64_t begin, int64_t end) {
    combine(
        x, at.partial, at.scratch, rows, block_rows(rows), channels, begin, end, mean, variance);
  });
}

void batch_norm_forward(const BatchNormForward& op) {
  const Workspace at(op.workspace, op.channels);
  batch_norm_scale(op.channels, op.gamma, op.variance, op.epsilon, at.scale);
  const ChannelFactors factors = {op.mean, at.scale, op.beta, nullptr, nullptr};
  const auto kernel = HWY_DYNAMIC_DISPATCH(forward_kernel);
  parallel_for(op.rows, grain_rows(op.channels), [&](int64_t begin, int64_t end) {
    kernel(op, factors, begin, end);
  });
}

namespace {

ChannelFactors backward_factors(const BatchNormBackward& op, const Workspace& at) {
  batch_norm_scale(op.channels, op.gamma, op.variance, op.epsilon, at.scale);
  return {op.mean, at.scale, op.beta, at.slope, at.offset};
}

Mask mask_of(const BatchNormBackward& op) {
  if (!op.relu) return Mask::kAll;
  return op.y != nullptr ? Mask::kFromOutput : Mask::kFromInput;
}

// Leaves the sums of g and of g * xhat over the rows in the scratch, in double precision, and
// writes d_gamma, d_beta and d_delta.
void sum_rows(const BatchNormBackward& op, const Workspace& at, const ChannelFactors& factors) {
  const int64_t channels = op.channels;
  const Mask mask = mask_of(op);
  const auto sums = HWY_DYNAMIC_DISPATCH(backward_sums_kernel);
  for_each_block(op.rows, channels, [&](int64_t block, int64_t begin, int64_t end) {
    float* const partial = at.partial + block * 2 * channels;
    sums(op, factors, mask, begin, end, partial, partial + channels);
  });
  const int64_t blocks = block_count(op.rows);
  parallel_for(channels, grain_rows(2 * blocks), [&](int64_t begin, int64_t end) {
    double *g_sum = at.scratch, *product_sum = at.scratch + channels;
    std::fill(g_sum + begin, g_sum + end, 0.0);
    std::fill(product_sum + begin, product_sum + end, 0.0);
    for (int64_t block = 0; block < blocks; ++block) {
      const float* const partial = at.partial + block * 2 * channels;
      for (int64_t c = begin; c < end; ++c) g_sum[c] += partial[c];
      for (int64_t c = begin; c < end; ++c) product_sum[c] += partial[channels + c];
    }
    for (int64_t c = begin; c < end; ++c) {
      product_sum[c] *= inverse_deviation(op.variance[c], op.epsilon);
      op.d_beta[c] = static_cast<float>(g_sum[c]);
      op.d_gamma[c] = static_cast<float>(product_sum[c]);
    }
  });
}

// d_x from the sums over all rows.
void spread_sums(const BatchNormBackward& op,
                 const Workspace& at,
                 const ChannelFactors& factors,
                 int64_t all_rows,
                 const double* g_sums,
                 const double* product_sums) {
  const auto rows = static_cast<double>(all_rows);
  for (int64_t c = 0; c < op.channels; ++c) {
    const double rstd = inverse_deviation(op.variance[c], op.epsilon), scale = op.gamma[c] * rstd;
    at.offset[c] = static_cast<float>(-scale * g_sums[c] / rows);
    at.slope[c] = static_cast<float>(-scale * rstd * product_sums[c] / rows);
  }
  const Mask mask = mask_of(op);
  const auto kernel = HWY_DYNAMIC_DISPATCH(backward_kernel);
  parallel_for(op.rows, grain_rows(op.channels), [&](int64_t begin, int64_t end) {
    kernel(op, factors, mask, begin, end);
  });
}

}  // namespace

void batch_norm_backward_sums(const BatchNormBackward& op) {
  const Workspace at(op.workspace, op.channels);
  sum_rows(op, at, backward_factors(op, at));
}

void batch_norm_backward_input(const BatchNormBackward& op,
                               int64_t all_rows,
                               const double* g_sums,
                               const double* product_sums) {
  const Workspace at(op.workspace, op.channels);
  spread_sums(op, at, backward_factors(op, at), all_rows, g_sums, product_sums);
}

void batch_norm_backward(const BatchNormBackward& op) {
  const Workspace at(op.workspace, op.channels);
  const ChannelFactors factors = backward_factors(op, at);
  sum_rows(op, at, factors);
  // What has been written as d_delta need not be masked again; d_y and y may lie below it.
  BatchNormBackward rest = op;
  if (op.d_delta != nullptr) {
    rest.d_y = op.d_delta;
    rest.relu = false;
  }
  spread_sums(rest, at, factors, op.rows, at.scratch, at.scratch + op.channels);
}

void combine_lane_statistics(
    int64_t lanes, int64_t channels, const float* statistics, float* mean, float* variance) {
  const auto count = static_cast<double>(lanes);
  for (int64_t c = 0; c < channels; ++c) {
    const auto at = [&](int64_t lane, int64_t which) {
      return static_cast<double>(statistics[(2 * lane + which) * channels + c]);
    };
    double means = 0, squares = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) means += at(lane, 0);
    const double whole = means / count;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const double distance = at(lane, 0) - whole;
      squares += at(lane, 1) + distance * distance;
    }
    mean[c] = static_cast<float>(whole);
    variance[c] = static_cast<float>(squares / count);
  }
}

void unbiased_variance(int64_t rows, int64_t channels, const float* variance, float* out) {
  const double factor = rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1.0;
  for (int64_t c = 0; c < channels; ++c) out[c] = static_cast<float>(variance[c] * factor);
}

namespace {

size_t batch_norm_workspace(const OpCall& op) {
  const Shape& x = op.input_shape(0);
  return batch_norm_workspace_bytes(x.rows(), x.columns());
}

void run_batch_norm(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  const int64_t rows = call.input_shape(0).rows(), channels = call.input_shape(0).columns();
  const float *mean = call.input<float>(4), *variance = call.input<float>(5);
  if (call.training()) {
    float *batch_mean = call.output<float>(1), *batch_variance = call.output<float>(2);
    if (const float* lanes = call.input<float>(6)) {
      combine_lane_statistics(call.input_shape(6)[0], channels, lanes, batch_mean, batch_variance);
    } else {
      batch_norm_statistics(
          rows, channels, call.input<float>(0), batch_mean, batch_variance, call.workspace());
    }
    mean = batch_mean;
    variance = batch_variance;
  }
  batch_norm_forward({.rows = rows,
                      .channels = channels,
                      .epsilon = attributes.epsilon,
                      .relu = attributes.activation == Activation::kRelu,
                      .x = call.input<float>(0),
                      .delta = call.input<float>(1),
                      .gamma = call.input<float>(2),
                      .beta = call.input<float>(3),
                      .mean = mean,
                      .variance = variance,
                      .y = call.output<float>(0),
                      .workspace = call.workspace()});
}

// What the backward ops share: all but where results go.
BatchNormBackward batch_norm_backward_of(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  return {.rows = call.input_shape(2).rows(),
          .channels = call.input_shape(2).columns(),
          .epsilon = attributes.epsilon,
          .relu = attributes.activation == Activation::kRelu,
          .d_y = call.input<float>(0),
          .y = call.input<float>(1),
          .x = call.input<float>(2),
          .gamma = call.input<float>(3),
          .beta = call.input<float>(4),
          .mean = call.input<float>(5),
          .variance = call.input<float>(6),
          .d_x = nullptr,
          .d_delta = nullptr,
          .d_gamma = nullptr,
          .d_beta = nullptr,
          .workspace = call.workspace()};
}

// The running statistics' gradients: what a batch of `rows` rows shows of them.
void show_statistics(const OpCall& call, const BatchNormBackward& op, int64_t rows) {
  std::copy_n(op.mean, op.channels, call.output<float>(4));
  unbiased_variance(rows, op.channels, op.variance, call.output<float>(5));
}

void run_batch_norm_backward(const OpCall& call) {
  BatchNormBackward op = batch_norm_backward_of(call);
  op.d_x = call.output<float>(0);
  op.d_delta = call.output<float>(1);
  op.d_gamma = call.output<float>(2);
  op.d_beta = call.output<float>(3);
  batch_norm_backward(op);
  show_statistics(call, op, op.rows);
}

void run_batch_statistics(const OpCall& call) {
  const int64_t channels = call.input_shape(0).columns();
  float* const mean = call.output<float>(0);
  batch_norm_statistics(call.input_shape(0).rows(),
                        channels,
                        call.input<float>(0),
                        mean,
                        mean + channels,
                        call.workspace());
}

void run_batch_norm_sums(const OpCall& call) {
  BatchNormBackward op = batch_norm_backward_of(call);
  op.d_delta = call.output<float>(1);
  op.d_gamma = call.output<float>(2);
  op.d_beta = call.output<float>(3);
  batch_norm_backward_sums(op);
  float* const sums = call.output<float>(0);
  std::copy_n(op.d_beta, op.channels, sums);
  std::copy_n(op.d_gamma, op.channels, sums + op.channels);
  const auto& attributes = call.attributes<BatchNormAttributes>();
  show_statistics(call, op, op.rows * attributes.lanes);
}

// The lanes' sums, in order, in double precision behind what the kernel itself needs.
size_t batch_norm_input_gradient_workspace(const OpCall& op) {
  const Shape& x = op.input_shape(2);
  return batch_norm_workspace_bytes(x.rows(), x.columns()) / 64 * 64 + 64 +
         2 * static_cast<size_t>(x.columns()) * sizeof(double);
}

void run_batch_norm_input_gradient(const OpCall& call) {
  BatchNormBackward op = batch_norm_backward_of(call);
  op.d_x = call.output<float>(0);
  const float* const all = call.input<float>(7);
  const int64_t lanes = call.input_shape(7)[0];
  auto* const sums = reinterpret_cast<double*>(
      call.workspace() + batch_norm_workspace_bytes(op.rows, op.channels) / 64 * 64 + 64);
  for (int64_t i = 0; i < 2 * op.channels; ++i) {
    sums[i] = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) sums[i] += all[lane * 2 * op.channels + i];
  }
  batch_norm_backward_input(op, op.rows * lanes, sums, sums + op.channels);
}

constexpr Implementation kRows[] = {
    {OpKind::kBatchNorm, "simd", run_batch_norm, batch_norm_workspace},
    {OpKind::kBatchNormBackward, "simd", run_batch_norm_backward, batch_norm_workspace},
    {OpKind::kBatchStatistics, "simd", run_batch_statistics, batch_norm_workspace},
    {OpKind::kBatchNormSums, "simd", run_batch_norm_sums, batch_norm_workspace},
    {OpKind::kBatchNormInputGradient,
     "simd",
     run_batch_norm_input_gradient,
     batch_norm_input_gradient_workspace},
};

}  // namespace

constinit const Implementations kCpuBatchNorm = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
