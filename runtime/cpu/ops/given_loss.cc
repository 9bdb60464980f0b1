#include "runtime/graph/ops/given_loss.h"

#include <algorithm>

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
                       const graph::LaneContext& lane,
                       LossRow* results,
                       int64_t begin,
                       int64_t end) {
  compute_loss_rows(op, lane, results, begin, end, [&](int64_t row) HWY_ATTR {
    const auto outputs = static_cast<double>(op.outputs);
    RowSum sum;
    for_each_row_vector(op.outputs, [&](size_t i, auto part, auto access) HWY_ATTR {
      sum.add(part, access.load(op.losses + row * op.outputs + i));
    });
    if (op.gradient != nullptr)
      std::fill_n(op.gradient + row * op.outputs,
                  op.outputs,
                  static_cast<float>(static_cast<double>(lane.gradient_scale) / outputs));
    return LossRow{.loss = static_cast<double>(sum.total()) / outputs, .correct = 0, .counted = 1};
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::cpu {
HWY_EXPORT(given_loss_kernel);

namespace {

void run(const graph::GivenLoss<float>& op) {
  run_loss(op, HWY_DYNAMIC_DISPATCH(given_loss_kernel));
}

constexpr exec::Implementation kRows[] = {
    row<run, loss_workspace>(graph::OpKind::kGivenLoss, "simd")};

}  // namespace

constinit const exec::Implementations kCpuGivenLoss = kRows;

}  // namespace lockstep::cpu
#endif  // HWY_ONCE
