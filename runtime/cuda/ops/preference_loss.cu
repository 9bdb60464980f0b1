#include "runtime/graph/ops/preference_loss.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/for_each.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_rows.h"

namespace lockstep::cuda {
namespace {

template <typename T>
struct LossOfPair {
  graph::PreferenceLoss<T> op;
  const graph::LaneContext* lane;
  RowLoss* results;

  template <typename Count>
  __device__ void operator()(int64_t pair, Count) const {
    const int64_t chosen = 2 * pair, rejected = 2 * pair + 1;
    float d_z = 0;
    results[pair] = {0, kNotCounted};
    if (pair < lane->valid_rows) {
      float margin = to_float(op.scores[chosen]) - to_float(op.scores[rejected]);
      if (op.reference != nullptr) margin -= op.reference[chosen] - op.reference[rejected];
      const float z = op.attributes.beta * margin, e = expf(-fabsf(z));
      const auto of_pair =
          graph::PairLoss<float>::of(z, e, log1pf(e), op.attributes.label_smoothing);
      results[pair] = {of_pair.loss, z > 0 ? 1.0f : 0.0f};
      d_z = of_pair.d_z * (op.attributes.beta * lane->gradient_scale);
    }
    if (op.gradient == nullptr) return;
    op.gradient[chosen] = round_to<T>(d_z);
    op.gradient[rejected] = round_to<T>(-d_z);
  }
};

void run(const graph::OpCall& call) {
  by_type<graph::PreferenceLoss>(call, [&]<typename T>(const auto& op) {
    auto* const results = call.workspace<RowLoss>();
    for_each_flat<1>(
        op.pairs, false, LossOfPair<T>{op, context_of(call).lane, results}, stream_of(call));
    sum_row_losses(results, op.pairs, op.statistics, stream_of(call));
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, loss_rows_workspace>(graph::OpKind::kPreferenceLoss, "native")};

}  // namespace

constinit const exec::Implementations kCudaPreferenceLoss = kRows;

}  // namespace lockstep::cuda
