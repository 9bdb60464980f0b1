#include "runtime/graph/ops/given_loss.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_row_kernel.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

template <bool Backward, typename T>
struct GivenLossRow {
  graph::GivenLoss<T> op;

  __device__ RowLoss operator()(int64_t row, int lane, bool counts, float gradient_scale) const {
    const auto outputs = static_cast<float>(op.outputs);
    const float slope = counts ? gradient_scale / outputs : 0;
    float loss = 0;
    for (int64_t i = row * op.outputs + lane; i < (row + 1) * op.outputs; i += kWarp) {
      loss += to_float(op.losses[i]);
      if constexpr (Backward) op.gradient[i] = round_to<T>(slope);
    }
    return {warp_reduce<Sum>(loss) / outputs, 0};
  }
};

void run(const graph::OpCall& call) {
  by_type<graph::GivenLoss>(call, [&]<typename T>(const auto& op) {
    op.gradient != nullptr ? run_loss_rows(call, GivenLossRow<true, T>{op})
                           : run_loss_rows(call, GivenLossRow<false, T>{op});
  });
}

constexpr exec::Implementation kRows[] = {
    exec::row<run, loss_rows_workspace>(graph::OpKind::kGivenLoss, "native")};

}  // namespace

constinit const exec::Implementations kCudaGivenLoss = kRows;

}  // namespace lockstep::cuda
