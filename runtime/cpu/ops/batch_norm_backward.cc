#include <algorithm>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/batch_norm.h"
#include "runtime/cpu/stored.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/batch_norm_backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/ops/batch_norm-inl.h"

#ifndef LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_BACKWARD_CC
#define LOCKSTEP_RUNTIME_CPU_OPS_BATCH_NORM_BACKWARD_CC
namespace lockstep::cpu {

// How to find which elements passed the activation (ReLU).
enum class Mask { kAll, kFromInput, kFromOutput };

// What the kernels' loops know at compile time: the mask, and whether d_y is a sum.
template <Mask kTheMask, bool kIsSum>
struct GradientKind {
  static constexpr Mask kMask = kTheMask;
  static constexpr bool kSum = kIsSum;
};

// What a kernel reads, and the rows that it writes: d_delta or d_x.
template <typename T>
struct GradientRows {
  const graph::BatchNormGradientInputs<T>& in;
  T* to;
};

}  // namespace lockstep::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

// Calls body with the GradientKind.
template <typename T, typename Body>
HWY_INLINE void with_kind(const graph::BatchNormGradientInputs<T>& in, Mask mask, Body body) {
  const auto with_mask = [&]<Mask kMask>() HWY_ATTR {
    in.d_y2 != nullptr ? body(GradientKind<kMask, true>{}) : body(GradientKind<kMask, false>{});
  };
  switch (mask) {
    case Mask::kAll: return with_mask.template operator()<Mask::kAll>();
    case Mask::kFromInput: return with_mask.template operator()<Mask::kFromInput>();
    case Mask::kFromOutput: return with_mask.template operator()<Mask::kFromOutput>();
  }
}

// g and x - mean of one element of channel c.
struct Passed {
  Vec g, centred;
};
template <Mask kMask, bool kSum, typename T, typename Access>
HWY_INLINE Passed passed(const graph::BatchNormGradientInputs<T>& in,
                         const BatchNormWorkspace& at,
                         int64_t i,
                         size_t c,
                         Access access) {
  Vec d_y = access.load(in.d_y + i);
  if constexpr (kSum) d_y = as_stored<T>(hn::Add(d_y, access.load(in.d_y2 + i)));
  const Vec centred = hn::Sub(access.load(in.x + i), access.load(in.mean + c));
  if constexpr (kMask == Mask::kAll) {
    return {d_y, centred};
  } else if constexpr (kMask == Mask::kFromOutput) {
    const Vec y = access.load(in.y + i);
    return {hn::IfThenElseZero(hn::Gt(y, hn::Zero(F32())), d_y), centred};
  } else {
    // The same arithmetic as in the forward pass.
    const Vec y = hn::MulAdd(centred, access.load(at.scale + c), access.load(in.beta + c));
    return {hn::IfThenElseZero(hn::Gt(y, hn::Zero(F32())), d_y), centred};
  }
}

// Sums over rows [begin, end) of g and of g (x - mean); writes d_delta.
template <Mask kMask, bool kSum, typename T>
void backward_sums_range(const graph::BatchNormGradientInputs<T>& in,
                         const BatchNormWorkspace& at,
                         T* d_delta,
                         int64_t begin,
                         int64_t end,
                         float* sums,
                         float* products) {
  const int64_t channels = in.channels;
  std::fill_n(sums, channels, 0.0f);
  std::fill_n(products, channels, 0.0f);
  int64_t row = begin;
  for (; row + kTreeRows <= end; row += kTreeRows) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      Vec g[kTreeRows], centred[kTreeRows];
      for (int64_t k = 0; k < kTreeRows; ++k) {
        const int64_t i = (row + k) * channels + static_cast<int64_t>(c);
        const Passed p = passed<kMask, kSum>(in, at, i, c, access);
        g[k] = p.g;
        centred[k] = access.keep(p.centred);
        if (d_delta != nullptr) access.store(p.g, d_delta + i);
      }
      access.store(hn::Add(access.load(sums + c), tree_sum(g)), sums + c);
      access.store(hn::Add(access.load(products + c), tree_product_sum(g, centred)), products + c);
    });
  }
  for (; row < end; ++row) {
    for_each_vector(channels, [&](size_t c, auto access) HWY_ATTR {
      const int64_t i = row * channels + static_cast<int64_t>(c);
      const Passed p = passed<kMask, kSum>(in, at, i, c, access);
      if (d_delta != nullptr) access.store(p.g, d_delta + i);
      access.store(hn::Add(access.load(sums + c), p.g), sums + c);
      access.store(hn::MulAdd(p.g, p.centred, access.load(products + c)), products + c);
    });
  }
}

void backward_sums_kernel(AnyStored<GradientRows> stored,
                          const BatchNormWorkspace& at,
                          Mask mask,
                          int64_t begin,
                          int64_t end,
                          float* sums,
                          float* products) {
  stored.with([&]<typename T>(const GradientRows<T>& rows) HWY_ATTR {
    const auto& [in, d_delta] = rows;
    with_kind(in, mask, [&](auto kind) HWY_ATTR {
      using Kind = decltype(kind);
      backward_sums_range<Kind::kMask, Kind::kSum>(in, at, d_delta, begin, end, sums, products);
    });
  });
}

template <Mask kMask, bool kSum, int kRows, typename T>
HWY_INLINE void backward_rows(const graph::BatchNormGradientInputs<T>& in,
                              const BatchNormWorkspace& at,
                              T* d_x,
                              int64_t row) {
  for_each_vector(in.channels, [&](size_t c, auto access) HWY_ATTR {
    const Vec scale = access.load(at.scale + c);
    const Vec slope = access.load(at.slope + c), offset = access.load(at.offset + c);
    for (int k = 0; k < kRows; ++k) {
      const int64_t i = (row + k) * in.channels + static_cast<int64_t>(c);
      const Passed p = passed<kMask, kSum>(in, at, i, c, access);
      access.store(hn::MulAdd(p.g, scale, hn::MulAdd(p.centred, slope, offset)), d_x + i);
    }
  });
}

template <Mask kMask, bool kSum, typename T>
void backward_range(const graph::BatchNormGradientInputs<T>& in,
                    const BatchNormWorkspace& at,
                    T* d_x,
                    int64_t begin,
                    int64_t end) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) backward_rows<kMask, kSum, 4>(in, at, d_x, row);
  for (; row < end; ++row) backward_rows<kMask, kSum, 1>(in, at, d_x, row);
}

void backward_kernel(AnyStored<GradientRows> stored,
                     const BatchNormWorkspace& at,
                     Mask mask,
                     int64_t begin,
                     int64_t end) {
  stored.with([&]<typename T>(const GradientRows<T>& rows) HWY_ATTR {
    const auto& [in, d_x] = rows;
    with_kind(in, mask, [&](auto kind) HWY_ATTR {
      using Kind = decltype(kind);
      backward_range<Kind::kMask, Kind::kSum>(in, at, d_x, begin, end);
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(backward_sums_kernel);
HWY_EXPORT(backward_kernel);

namespace {

template <typename T>
using Inputs = graph::BatchNormGradientInputs<T>;
template <typename T>
using ParameterGradients = graph::BatchNormParameterGradients<T>;

template <typename T>
void find_scale(const Inputs<T>& in, const BatchNormWorkspace& at) {
  batch_norm_scale(in.channels, in.gamma, in.variance, in.epsilon, at.scale);
}

template <typename T>
Mask mask_of(const Inputs<T>& in) {
  if (!in.relu) return Mask::kAll;
  return in.y != nullptr ? Mask::kFromOutput : Mask::kFromInput;
}

// Leaves the sums of g and of g * xhat over the rows in the scratch memory, in double precision,
// and writes d_gamma, d_beta and, unless it is null, d_delta.
template <typename T>
void sum_rows(const Inputs<T>& in,
              const BatchNormWorkspace& at,
              T* d_delta,
              const ParameterGradients<T>& to) {
  const int64_t channels = in.channels;
  const Mask mask = mask_of(in);
  const GradientRows<T> rows = {in, d_delta};
  const RowParts parts = batch_norm_parts(in.rows);
  const auto sums = HWY_DYNAMIC_DISPATCH(backward_sums_kernel);
  for_each_part(parts, channels, [&](int64_t part, int64_t begin, int64_t end) {
    float* const partial = at.partial + part * 2 * channels;
    sums(rows, at, mask, begin, end, partial, partial + channels);
  });
  parallel_for(channels, grain_rows(2 * parts.count), [&](int64_t begin, int64_t end) {
    double *g_sum = at.scratch, *product_sum = at.scratch + channels;
    std::fill(g_sum + begin, g_sum + end, 0.0);
    std::fill(product_sum + begin, product_sum + end, 0.0);
    for (int64_t part = 0; part < parts.count; ++part) {
      const float* const partial = at.partial + part * 2 * channels;
      for (int64_t c = begin; c < end; ++c) g_sum[c] += partial[c];
      for (int64_t c = begin; c < end; ++c) product_sum[c] += partial[channels + c];
    }
    for (int64_t c = begin; c < end; ++c) {
      product_sum[c] *= inverse_deviation(in.variance[c], in.epsilon);
      to.d_beta[c] = static_cast<float>(g_sum[c]);
      to.d_gamma[c] = static_cast<float>(product_sum[c]);
    }
  });
}

// Computes d_x from the sums over all rows, of which these rows may be a part:
// d_x = scale * g + (x - mean) * slope + offset.
template <typename T>
void compute_input_gradient(const Inputs<T>& in,
                            const BatchNormWorkspace& at,
                            int64_t all_rows,
                            const double* g_sums,
                            const double* product_sums,
                            T* d_x) {
  const auto rows = static_cast<double>(all_rows);
  for (int64_t c = 0; c < in.channels; ++c) {
    const double rstd = inverse_deviation(in.variance[c], in.epsilon),
                 scale = to_float(in.gamma[c]) * rstd;
    at.offset[c] = static_cast<float>(-scale * g_sums[c] / rows);
    at.slope[c] = static_cast<float>(-scale * rstd * product_sums[c] / rows);
  }
  in_parallel(in.rows,
              grain_rows(in.channels),
              HWY_DYNAMIC_DISPATCH(backward_kernel),
              GradientRows<T>{in, d_x},
              at,
              mask_of(in));
}

// The running statistics' "gradients": the statistics of a batch of `rows` rows. The variance is
// the unbiased estimate; for a single row, the biased one.
template <typename T>
void write_batch_statistics(const Inputs<T>& in, int64_t rows, const ParameterGradients<T>& to) {
  std::copy_n(in.mean, in.channels, to.d_running_mean);
  const double factor = rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1.0;
  for (int64_t c = 0; c < in.channels; ++c)
    to.d_running_variance[c] = static_cast<float>(in.variance[c] * factor);
}

// Offset of the lanes' sums in the workspace of batch_norm_input_gradient: after everything else.
template <typename T>
size_t all_sums_offset(const Inputs<T>& in) {
  return BatchNormWorkspace::bytes(in.rows, in.channels) / 64 * 64 + 64;
}

}  // namespace

template <typename T>
void run_batch_norm_backward(const graph::OpCall& call) {
  const graph::BatchNormBackward<T> op{call};
  const BatchNormWorkspace at(op.workspace, op.in.channels);
  find_scale(op.in, at);
  sum_rows(op.in, at, op.d_delta, op.parameters);
  // d_delta is summed and masked already; d_y, d_y2 and y may share its memory.
  Inputs<T> rest = op.in;
  if (op.d_delta != nullptr) {
    rest.d_y = op.d_delta;
    rest.d_y2 = nullptr;
    rest.relu = false;
  }
  compute_input_gradient(rest, at, op.in.rows, at.scratch, at.scratch + op.in.channels, op.d_x);
  write_batch_statistics(op.in, op.in.rows, op.parameters);
}
template void run_batch_norm_backward<float>(const graph::OpCall& call);
template void run_batch_norm_backward<BFloat16>(const graph::OpCall& call);

template <typename T>
void run_batch_norm_sums(const graph::OpCall& call) {
  const graph::BatchNormSums<T> op{call};
  const BatchNormWorkspace at(op.workspace, op.in.channels);
  find_scale(op.in, at);
  sum_rows(op.in, at, op.d_delta, op.parameters);
  std::copy_n(op.parameters.d_beta, op.in.channels, op.sums);
  std::copy_n(op.parameters.d_gamma, op.in.channels, op.sums + op.in.channels);
  write_batch_statistics(op.in, op.in.rows * op.lanes, op.parameters);
}
template void run_batch_norm_sums<float>(const graph::OpCall& call);
template void run_batch_norm_sums<BFloat16>(const graph::OpCall& call);

size_t batch_norm_input_gradient_workspace_bytes(const graph::OpCall& call) {
  const graph::BatchNormGradientInputs<float> in{call};
  return all_sums_offset(in) + 2 * static_cast<size_t>(in.channels) * sizeof(double);
}

template <typename T>
void run_batch_norm_input_gradient(const graph::OpCall& call) {
  const graph::BatchNormInputGradient<T> op{call};
  const int64_t n = 2 * op.in.channels;
  // The lanes' sums, added in order, in double precision.
  auto* const sums = reinterpret_cast<double*>(call.workspace() + all_sums_offset(op.in));
  for (int64_t i = 0; i < n; ++i) {
    sums[i] = 0;
    for (int64_t lane = 0; lane < op.lanes; ++lane) sums[i] += op.all_sums[lane * n + i];
  }
  const BatchNormWorkspace at(op.workspace, op.in.channels);
  find_scale(op.in, at);
  compute_input_gradient(op.in, at, op.in.rows * op.lanes, sums, sums + op.in.channels, op.d_x);
}
template void run_batch_norm_input_gradient<float>(const graph::OpCall& call);
template void run_batch_norm_input_gradient<BFloat16>(const graph::OpCall& call);

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
