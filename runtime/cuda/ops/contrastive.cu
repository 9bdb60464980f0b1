#include "runtime/graph/ops/contrastive.h"

#include <cmath>

#include "runtime/base/check.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/kernel_tools.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/loss_rows.h"
#include "runtime/cuda/plan/losses.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kRows = kThreads / kWarp;  // of vectors, a warp each

template <typename T>
__device__ __forceinline__ float scale_of(const T* logit_scale, float scale) {
  if (logit_scale == nullptr) return scale;
  return fminf(expf(to_float(logit_scale[0])), graph::kMaxContrastiveScale);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) unit_rows_kernel(graph::UnitRowsForward<T> op) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % kWarp;
  const T* const x = op.x + row * op.width;
  float* const y = op.y + unit_row_place(op.attributes, op.rows, row) * op.width;
  float factor = 1;
  if (op.attributes.normalise) {
    float squares = 0;
    for (int64_t i = lane; i < op.width; i += kWarp) squares += to_float(x[i]) * to_float(x[i]);
    squares = warp_reduce<Sum>(squares);
    factor = squares == 0 ? 0 : 1 / sqrtf(squares);
  }
  if (lane == 0 && op.inverse != nullptr) op.inverse[row] = factor;
  if (op.attributes.scaled && row % op.attributes.texts == 0)
    factor *= scale_of(op.logit_scale, op.attributes.scale);
  for (int64_t i = lane; i < op.width; i += kWarp) y[i] = to_float(x[i]) * factor;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    unit_rows_backward_kernel(graph::UnitRowsBackward<T> op) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarp;
  if (row >= op.rows) return;
  const int lane = threadIdx.x % kWarp;
  const T* const x = op.x + row * op.width;
  const float* const d_y = op.d_y + unit_row_place(op.attributes, op.rows, row) * op.width;
  const float inverse = op.inverse[row];
  float along = 0;
  if (op.attributes.normalise) {
    for (int64_t i = lane; i < op.width; i += kWarp) along += to_float(x[i]) * d_y[i];
    along = warp_reduce<Sum>(along) * inverse * inverse;
  }
  for (int64_t i = lane; i < op.width; i += kWarp)
    op.d_x[row * op.width + i] = round_to<T>((d_y[i] - to_float(x[i]) * along) * inverse);
}

// A block for each softmax: of an anchor over the candidates, then of a positive over the anchors.
template <typename T>
__global__ void __launch_bounds__(kThreads) sums_kernel(graph::ContrastiveSums<T> op) {
  const int64_t index = blockIdx.x, batch = op.sizes.batch;
  const bool of_anchor = index < batch;
  const int64_t first = of_anchor ? batch : 0;
  const int64_t count = of_anchor ? (op.sizes.texts - 1) * batch : batch;
  const float* const row = op.products + index * op.sizes.columns() + first;
  const float scale = scale_of(op.logit_scale, op.attributes.scale);
  const auto s = [&](int64_t i) { return row[i / count * op.sizes.rows() + i % count] * scale; };
  float largest = -INFINITY;
  for (int64_t i = threadIdx.x; i < count * op.sizes.lanes; i += kThreads)
    largest = Max::apply(s(i), largest);
  largest = block_reduce<Max, kThreads>(largest);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count * op.sizes.lanes; i += kThreads)
    sum += expf(s(i) - largest);
  sum = block_reduce<Sum, kThreads>(sum);
  if (threadIdx.x > 0) return;
  float* const sums = op.sums + (of_anchor ? 0 : 2 * batch) + index % batch;
  sums[0] = largest;
  sums[batch] = sum;
}

// A block for each of the lane's vectors.
template <typename T>
__global__ void __launch_bounds__(kThreads) loss_kernel(graph::ContrastiveLoss<T> op,
                                                        const graph::LaneContext* here,
                                                        RowLoss* results,
                                                        float* d_scales) {
  const int64_t row = blockIdx.x, batch = op.sizes.batch, lane_rows = op.sizes.rows();
  const int64_t sample = row % batch, text = row / batch, own = here->lane;
  const bool symmetric = op.attributes.symmetric;
  const float scale = scale_of(op.logit_scale, op.attributes.scale);
  const float weight = symmetric ? 0.5f * here->gradient_scale : here->gradient_scale;
  const float* const products = op.products + row * op.sizes.columns();
  float* const gradient = op.gradient + row * op.sizes.columns();
  const int64_t partner = own * lane_rows + (text == 0 ? batch : 0) + sample;
  const float partner_s = products[partner] * scale;
  __syncthreads();  // the gradient may overwrite it
  const float* const mine = op.sums_of(own, 0) + sample;
  const float* const back = op.sums_of(own, symmetric ? 1 : 0) + sample;
  float d_scale = 0;
  for (int64_t i = threadIdx.x; i < op.sizes.columns(); i += kThreads) {
    const int64_t lane = i / lane_rows, at = i % lane_rows, other = at / batch;
    float g = 0;
    if ((text == 0) != (other == 0)) {
      const float s = products[i] * scale;
      const float* const anchor = text == 0 ? mine : op.sums_of(lane, 0) + at;
      g = weight * expf(s - anchor[0]) / anchor[batch];
      if (symmetric && text + other == 1) {
        const float* const positive = text == 1 ? back : op.sums_of(lane, 1) + at - batch;
        g += weight * expf(s - positive[0]) / positive[batch];
      }
      if (i == partner && text < 2) g -= here->gradient_scale;
      if (text == 0) d_scale += g * s;
      g *= scale;
    }
    gradient[i] = g;
  }
  if (text > 0) return;
  d_scale = block_reduce<Sum, kThreads>(d_scale);
  if (threadIdx.x > 0) return;
  const auto loss = [&](const float* sums) { return logf(sums[batch]) + (sums[0] - partner_s); };
  results[sample] = {symmetric ? 0.5f * (loss(mine) + loss(back)) : loss(mine), 0};
  d_scales[sample] = d_scale;
}

__global__ void __launch_bounds__(kThreads)
    sum_kernel(const float* values, int64_t count, float* result) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum += values[i];
  sum = block_reduce<Sum, kThreads>(sum);
  if (threadIdx.x == 0) result[0] = sum;
}

__global__ void count_kernel(int64_t rows, const graph::LaneContext* lane, double* statistics) {
  if (threadIdx.x >= 4) return;
  const int64_t counted = lane->valid_rows < rows ? lane->valid_rows : rows;
  statistics[threadIdx.x] = threadIdx.x == 1 ? static_cast<double>(counted) : 0.0;
}

void run_unit_rows(const graph::OpCall& call) {
  by_type<graph::UnitRowsForward>(call, [&]<typename T>(const auto& op) {
    launch({blocks_for(op.rows, kRows), kThreads, stream_of(call)}, unit_rows_kernel<T>, op);
  });
}

void run_unit_rows_backward(const graph::OpCall& call) {
  by_type<graph::UnitRowsBackward>(call, [&]<typename T>(const auto& op) {
    launch(
        {blocks_for(op.rows, kRows), kThreads, stream_of(call)}, unit_rows_backward_kernel<T>, op);
  });
}

// The type of logit_scale; the products are floats.
template <template <typename> class Arguments, typename Name, typename F>
void by_scale_type(const graph::OpCall& call, Name name, F f) {
  const DType dtype = call.input<std::byte>(name) == nullptr ? DType::kF32 : call.input_dtype(name);
  by_type(dtype, [&]<typename T>() { f.template operator()<T>(Arguments<T>{call}); });
}

void run_sums(const graph::OpCall& call) {
  by_scale_type<graph::ContrastiveSums>(
      call, graph::ContrastiveSumsIn::kLogitScale, [&]<typename T>(const auto& op) {
        const int64_t softmaxes = op.sizes.batch * (op.attributes.symmetric ? 2 : 1);
        launch({blocks_for(softmaxes, 1), kThreads, stream_of(call)}, sums_kernel<T>, op);
      });
}

void run_loss(const graph::OpCall& call) {
  by_scale_type<graph::ContrastiveLoss>(
      call, graph::ContrastiveIn::kLogitScale, [&]<typename T>(const auto& op) {
        const int64_t batch = op.sizes.batch;
        auto* const results = call.workspace<RowLoss>();
        auto* const d_scales = reinterpret_cast<float*>(results + batch);
        launch({blocks_for(op.sizes.rows(), 1), kThreads, stream_of(call)},
               loss_kernel<T>,
               op,
               context_of(call).lane,
               results,
               d_scales);
        sum_row_losses(results, batch, op.statistics, stream_of(call));
        if (op.d_logit_scale != nullptr)
          launch({1, kThreads, stream_of(call)}, sum_kernel, d_scales, batch, op.d_logit_scale);
      });
}

void run_count(const graph::OpCall& call) {
  const graph::CountRows<float> op{call};
  launch({1, kWarp, stream_of(call)}, count_kernel, op.rows, context_of(call).lane, op.statistics);
}

constexpr exec::Implementation kImplementations[] = {
    exec::row<run_unit_rows>(graph::OpKind::kUnitRows, "native"),
    exec::row<run_unit_rows_backward>(graph::OpKind::kUnitRowsBackward, "native"),
    exec::row<run_sums>(graph::OpKind::kContrastiveSums, "native"),
    exec::row<run_loss, contrastive_workspace>(graph::OpKind::kContrastive, "native"),
    exec::row<run_count>(graph::OpKind::kCountRows, "native"),
};

}  // namespace

constinit const exec::Implementations kCudaContrastive = kImplementations;

}  // namespace lockstep::cuda
