#include "runtime/graph/ops/contrastive.h"

#include <algorithm>
#include <cmath>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/loss_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/contrastive.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void unit_rows_kernel(const graph::UnitRowsForward<float>& op,
                      float anchor_scale,
                      int64_t begin,
                      int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* const x = op.x + row * op.width;
    float* const y = op.y + unit_row_place(op.attributes, op.rows, row) * op.width;
    float inverse = 1;
    if (op.attributes.normalise) {
      const float norm = std::sqrt(row_dot(x, x, op.width));
      inverse = norm == 0 ? 0 : 1 / norm;
    }
    if (op.inverse != nullptr) op.inverse[row] = inverse;
    const Vec factor = set(row % op.attributes.texts == 0 ? inverse * anchor_scale : inverse);
    for_each_vector(op.width, [&](size_t i, auto access) HWY_ATTR {
      access.store(hn::Mul(access.load(x + i), factor), y + i);
    });
  }
}

void unit_rows_backward_kernel(const graph::UnitRowsBackward<float>& op,
                               int64_t begin,
                               int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* const x = op.x + row * op.width;
    const float* const d_y = op.d_y + unit_row_place(op.attributes, op.rows, row) * op.width;
    float* const d_x = op.d_x + row * op.width;
    const float inverse = op.inverse[row];
    const float along =
        op.attributes.normalise ? row_dot(x, d_y, op.width) * inverse * inverse : 0.0f;
    const Vec share = set(along), factor = set(inverse);
    for_each_vector(op.width, [&](size_t i, auto access) HWY_ATTR {
      const Vec across = hn::NegMulAdd(access.load(x + i), share, access.load(d_y + i));
      access.store(hn::Mul(across, factor), d_x + i);
    });
  }
}

// Adds the results of `count` products to a running maximum and sum: those of a row against the
// candidates of one lane.
HWY_INLINE float scaled_max(const float* products, int64_t count, float scale) {
  return row_max(products, count) * scale;
}
HWY_INLINE float scaled_sum(const float* products, int64_t count, float scale, float largest) {
  RowSum sum;
  const Vec factor = set(scale), shift = set(largest);
  for_each_row_vector(count, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec s = hn::Mul(access.load(products + i), factor);
    sum.add(part, access.keep(exp(hn::Sub(s, shift))));
  });
  return sum.total();
}

// Softmax number `index`: of an anchor over the candidates, then of a positive over the anchors.
void contrastive_sums_kernel(const graph::ContrastiveSums<float>& op,
                             float scale,
                             int64_t begin,
                             int64_t end) {
  const auto [lanes, texts, batch] = op.sizes;
  for (int64_t index = begin; index < end; ++index) {
    const bool of_anchor = index < batch;
    const int64_t first = of_anchor ? batch : 0, count = of_anchor ? (texts - 1) * batch : batch;
    const float* const row = op.products + index * op.sizes.columns() + first;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t lane = 0; lane < lanes; ++lane)
      largest = std::max(largest, scaled_max(row + lane * op.sizes.rows(), count, scale));
    double sum = 0;
    for (int64_t lane = 0; lane < lanes; ++lane)
      sum += scaled_sum(row + lane * op.sizes.rows(), count, scale, largest);
    float* const sums = op.sums + (of_anchor ? 0 : 2 * batch) + index % batch;
    sums[0] = largest;
    sums[batch] = static_cast<float>(sum);
  }
}

// A share of a softmax in the gradient: of one whose sums are the same for a row of products, or of
// the softmaxes of the columns.
struct RowShare {
  Vec largest, factor;  // factor: weight / sum
  template <typename Access>
  HWY_INLINE Vec at(size_t /*i*/, Vec s, Access /*access*/) const {
    return hn::Mul(exp(hn::Sub(s, largest)), factor);
  }
};
struct ColumnShare {
  const float* largest;
  const float* sum;
  Vec weight;
  template <typename Access>
  HWY_INLINE Vec at(size_t i, Vec s, Access access) const {
    const Vec e = exp(hn::Sub(s, access.load(largest + i)));
    return hn::Div(hn::Mul(e, weight), access.load_or(sum + i, 1.0f));
  }
};

struct NoShare {
  template <typename Access>
  HWY_INLINE Vec at(size_t /*i*/, Vec /*s*/, Access /*access*/) const {
    return hn::Zero(F32());
  }
};

// Overwrites products by their gradient; returns the sum of gradient times product.
template <typename First, typename Second>
HWY_INLINE float share_out(const float* products,
                           float* gradient,
                           int64_t count,
                           float scale,
                           const First& first,
                           const Second& second) {
  RowSum sum;
  const Vec factor = set(scale);
  for_each_row_vector(count, [&](size_t i, auto part, auto access) HWY_ATTR {
    const Vec s = hn::Mul(access.load(products + i), factor);
    const Vec g = hn::Add(first.at(i, s, access), second.at(i, s, access));
    sum.add(part, access.keep(hn::Mul(g, s)));
    access.store(hn::Mul(g, factor), gradient + i);
  });
  return sum.total();
}

// One of the lane's vectors against those of all lanes: writes the gradient of the row. For an
// anchor also its loss, and what it adds to the gradient of logit_scale.
void contrastive_kernel(const graph::ContrastiveLoss<float>& op,
                        float scale,
                        const graph::LaneContext& here,
                        LossRow* results,
                        double* d_scales,
                        int64_t begin,
                        int64_t end) {
  const auto [lanes, texts, batch] = op.sizes;
  const bool symmetric = op.attributes.symmetric;
  const float weight = symmetric ? 0.5f * here.gradient_scale : here.gradient_scale;
  const int64_t own = here.lane;
  for (int64_t row = begin; row < end; ++row) {
    const int64_t sample = row % batch, text = row / batch;
    const float* const products = op.products + row * op.sizes.columns();
    float* const gradient = op.gradient + row * op.sizes.columns();
    // The product of the anchor with its own positive.
    const int64_t partner = own * op.sizes.rows() + (text == 0 ? batch : 0) + sample;
    const float s = products[partner] * scale;
    const float* const mine = op.sums_of(own, 0) + sample;
    const RowShare anchor = {set(mine[0]), set(weight / mine[batch])};
    const float* const back = op.sums_of(own, symmetric ? 1 : 0) + sample;
    const RowShare positive = {set(back[0]), set(weight / back[batch])};
    double d_scale = 0;
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const int64_t at = lane * op.sizes.rows();
      const auto column = [&](int direction) HWY_ATTR {
        const float* const sums = op.sums_of(lane, direction);
        return ColumnShare{sums, sums + batch, set(weight)};
      };
      const auto share = [&](int64_t first, int64_t count, const auto& a, const auto& b) HWY_ATTR {
        return share_out(products + at + first, gradient + at + first, count, scale, a, b);
      };
      if (text == 0) {
        std::fill_n(gradient + at, batch, 0.0f);
        d_scale += symmetric ? share(batch, batch, anchor, column(1))
                             : share(batch, batch, anchor, NoShare{});
        if (texts > 2) d_scale += share(2 * batch, (texts - 2) * batch, anchor, NoShare{});
        continue;
      }
      std::fill_n(gradient + at + batch, (texts - 1) * batch, 0.0f);
      if (text == 1 && symmetric)
        share(0, batch, column(0), positive);
      else
        share(0, batch, column(0), NoShare{});
    }
    if (text < 2) gradient[partner] -= here.gradient_scale * scale;
    if (text > 0) continue;
    const auto loss = [&](const float* sums) {
      return std::log(static_cast<double>(sums[batch])) + (static_cast<double>(sums[0]) - s);
    };
    results[sample] = {.loss = symmetric ? 0.5 * (loss(mine) + loss(back)) : loss(mine),
                       .correct = 0,
                       .counted = 1};
    d_scales[sample] = d_scale - static_cast<double>(here.gradient_scale) * s;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(unit_rows_kernel);
HWY_EXPORT(unit_rows_backward_kernel);
HWY_EXPORT(contrastive_sums_kernel);
HWY_EXPORT(contrastive_kernel);

namespace {

float scale_of(const float* logit_scale, float scale) {
  if (logit_scale == nullptr) return scale;
  return std::min(std::exp(logit_scale[0]), graph::kMaxContrastiveScale);
}

void run_unit_rows(const graph::UnitRowsForward<float>& op) {
  const float scale = op.attributes.scaled ? scale_of(op.logit_scale, op.attributes.scale) : 1.0f;
  in_parallel(op.rows, grain_rows(op.width), HWY_DYNAMIC_DISPATCH(unit_rows_kernel), op, scale);
}

void run_unit_rows_backward(const graph::UnitRowsBackward<float>& op) {
  in_parallel(op.rows, grain_rows(op.width), HWY_DYNAMIC_DISPATCH(unit_rows_backward_kernel), op);
}

void run_sums(const graph::ContrastiveSums<float>& op) {
  in_parallel(op.sizes.batch * (op.attributes.symmetric ? 2 : 1),
              grain_rows(op.sizes.columns()),
              HWY_DYNAMIC_DISPATCH(contrastive_sums_kernel),
              op,
              scale_of(op.logit_scale, op.attributes.scale));
}

size_t loss_bytes(const graph::OpCall& call) {
  const int64_t batch = graph::ContrastiveLoss<float>{call}.sizes.batch;
  return loss_workspace_bytes(batch) + static_cast<size_t>(batch) * sizeof(double);
}

void run_loss(const graph::ContrastiveLoss<float>& op) {
  const int64_t batch = op.sizes.batch;
  auto* const results = op.call.workspace<LossRow>();
  auto* const d_scales = reinterpret_cast<double*>(results + batch);
  in_parallel(op.sizes.rows(),
              grain_rows(op.sizes.columns()),
              HWY_DYNAMIC_DISPATCH(contrastive_kernel),
              op,
              scale_of(op.logit_scale, op.attributes.scale),
              op.call.lane(),
              results,
              d_scales);
  sum_loss_rows(results, batch, op.statistics);
  if (op.d_logit_scale == nullptr) return;
  double sum = 0;
  for (int64_t i = 0; i < batch; ++i) sum += d_scales[i];
  op.d_logit_scale[0] = static_cast<float>(sum);
}

void run_count(const graph::CountRows<float>& op) {
  std::fill_n(op.statistics, 4, 0.0);
  op.statistics[1] = static_cast<double>(std::min(op.rows, op.call.lane().valid_rows));
}

constexpr exec::Implementation kRows[] = {
    row<run_unit_rows>(graph::OpKind::kUnitRows, "simd"),
    row<run_unit_rows_backward>(graph::OpKind::kUnitRowsBackward, "simd"),
    row<run_sums>(graph::OpKind::kContrastiveSums, "simd"),
    row<run_loss, loss_bytes>(graph::OpKind::kContrastive, "simd"),
    row<run_count>(graph::OpKind::kCountRows, "rows"),
};

}  // namespace

constinit const exec::Implementations kCpuContrastive = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
