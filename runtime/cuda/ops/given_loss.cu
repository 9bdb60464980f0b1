#include "runtime/graph/ops/given_loss.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;  // a warp handles a row
constexpr int kRows = kThreads / kWarp;

template <bool Backward, typename T>
__global__ void __launch_bounds__(kThreads)
    given_loss_kernel(graph::GivenLoss<T> op,
                      const graph::LaneContext* lane_context,
                      RowLoss* results) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % kWarp;
  const bool counts = row < lane_context->valid_rows;
  const auto outputs = static_cast<float>(op.outputs);
  const float slope = counts ? lane_context->gradient_scale / outputs : 0;
  float loss = 0;
  for (int64_t i = row * op.outputs + lane; i < (row + 1) * op.outputs; i += kWarp) {
    loss += to_float(op.losses[i]);
    if constexpr (Backward) op.gradient[i] = round_to<T>(slope);
  }
  loss = warp_reduce<Sum>(loss) / outputs;
  if (lane == 0) results[row] = counts ? RowLoss{loss, 0} : RowLoss{0, kNotCounted};
}

void run(const graph::OpCall& call) {
  by_type<graph::GivenLoss>(call, [&]<typename T>(const auto& op) {
    auto* const results = call.workspace<RowLoss>();
    launch({blocks_for(op.rows, kRows), kThreads, stream_of(call)},
           op.gradient != nullptr ? given_loss_kernel<true, T> : given_loss_kernel<false, T>,
           op,
           context_of(call).lane,
           results);
    sum_row_losses(results, op.rows, op.statistics, stream_of(call));
  });
}

constexpr exec::Implementation kImplementations[] = {
    exec::row<run, given_loss_workspace>(graph::OpKind::kGivenLoss, "native")};

}  // namespace

constinit const exec::Implementations kCudaGivenLoss = kImplementations;

}  // namespace lockstep::cuda
