#include "runtime/graph/ops/given_loss.h"

#include <algorithm>

#include "runtime/cpu/in_parallel.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cpu/ops/loss_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/cpu/ops/given_loss.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "runtime/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::cpu {
namespace HWY_NAMESPACE {

void given_loss_kernel(const graph::GivenLoss<float>& op,
                       int64_t valid_rows,
                       float gradient_scale,
                       LossRow* results,
                       int64_t begin,
                       int64_t end) {
  const auto outputs = static_cast<double>(op.outputs);
  const auto slope = static_cast<float>(static_cast<double>(gradient_scale) / outputs);
  for (int64_t row = begin; row < end; ++row) {
    const bool counts = row < valid_rows;
    const float* const losses = op.losses + row * op.outputs;
    RowSum sum;
    for_each_row_vector(counts ? op.outputs : 0, [&](size_t i, auto part, auto access) HWY_ATTR {
      sum.add(part, access.load(losses + i));
    });
    results[row] = counts ? LossRow{.loss = static_cast<double>(sum.total()) / outputs,
                                    .correct = 0,
                                    .counted = 1}
                          : LossRow{};
    if (op.gradient != nullptr)
      std::fill_n(op.gradient + row * op.outputs, op.outputs, counts ? slope : 0.0f);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(given_loss_kernel);

namespace {

size_t workspace_bytes(const graph::OpCall& call) {
  return loss_workspace_bytes(graph::GivenLoss<float>{call}.rows);
}

void run(const graph::GivenLoss<float>& op) {
  auto* const results = op.call.workspace<LossRow>();
  const graph::LaneContext& lane = op.call.lane();
  in_parallel(op.rows,
              grain_rows(op.outputs),
              HWY_DYNAMIC_DISPATCH(given_loss_kernel),
              op,
              lane.valid_rows,
              lane.gradient_scale,
              results);
  sum_loss_rows(results, op.rows, op.statistics);
}

constexpr exec::Implementation kRows[] = {
    row<run, workspace_bytes>(graph::OpKind::kGivenLoss, "simd")};

}  // namespace

constinit const exec::Implementations kCpuGivenLoss = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
