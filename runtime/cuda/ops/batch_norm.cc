#include "runtime/graph/ops/batch_norm.h"

#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/batch_norm.h"
#include "runtime/cuda/ops/implementations.h"

namespace lockstep::cuda {
namespace {

size_t batch_norm_workspace(const OpCall& op) {
  const Shape& x = op.input_shape(0);
  return batch_norm_workspace_bytes(x.rows(), x.columns());
}

template <typename T, typename S>
void normalise(const OpCall& call, const S* mean, const S* variance) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  batch_norm_forward<T, S>({.rows = call.input_shape(0).rows(),
                            .channels = call.input_shape(0).columns(),
                            .epsilon = attributes.epsilon,
                            .relu = attributes.activation == Activation::kRelu,
                            .x = call.input<T>(0),
                            .delta = call.input<T>(1),
                            .gamma = call.input<T>(2),
                            .beta = call.input<T>(3),
                            .mean = mean,
                            .variance = variance,
                            .y = call.output<T>(0)},
                           stream_of(call));
}

// Evaluation reads the running statistics as all parameters are stored, so rounded to 16 bits where
// the ops compute in such: one part in 500 of each at most, but for what is beyond FP16's range.
void run_batch_norm(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    if (!call.training()) return normalise<T>(call, call.input<T>(4), call.input<T>(5));
    float *mean = call.output<float>(1), *variance = call.output<float>(2);
    const int64_t channels = call.input_shape(0).columns();
    if (const float* lanes = call.input<float>(6)) {
      combine_lane_statistics(
          call.input_shape(6)[0], channels, lanes, mean, variance, stream_of(call));
    } else {
      batch_norm_statistics<T>(call.input<T>(0),
                               call.input_shape(0).rows(),
                               channels,
                               mean,
                               variance,
                               reinterpret_cast<float*>(call.workspace()),
                               stream_of(call));
    }
    normalise<T, float>(call, mean, variance);
  });
}

// What the backward ops share: all but where results go.
template <typename T>
BatchNormBackward<T> batch_norm_backward_of(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  BatchNormBackward<T> op{};
  op.rows = call.input_shape(2).rows();
  op.channels = call.input_shape(2).columns();
  op.epsilon = attributes.epsilon;
  op.relu = attributes.activation == Activation::kRelu;
  op.d_y = call.input<T>(0);
  op.y = call.input<T>(1);
  op.x = call.input<T>(2);
  op.gamma = call.input<T>(3);
  op.beta = call.input<T>(4);
  op.mean = call.input<float>(5);
  op.variance = call.input<float>(6);
  op.workspace = reinterpret_cast<float*>(call.workspace());
  return op;
}

template <typename T>
void give_gradients(const OpCall& call, BatchNormBackward<T>& op) {
  op.d_delta = call.output<T>(1);
  op.d_gamma = call.output<float>(2);
  op.d_beta = call.output<float>(3);
  op.batch_mean = call.output<float>(4);
  op.unbiased_variance = call.output<float>(5);
}

void run_batch_norm_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    BatchNormBackward<T> op = batch_norm_backward_of<T>(call);
    op.d_x = call.output<T>(0);
    give_gradients(call, op);
    batch_norm_backward<T>(op, stream_of(call));
  });
}

void run_batch_statistics(const OpCall& call) {
  const int64_t channels = call.input_shape(0).columns();
  float* const mean = call.output<float>(0);
  by_type(call.input_dtype(0), [&]<typename T>() {
    batch_norm_statistics<T>(call.input<T>(0),
                             call.input_shape(0).rows(),
                             channels,
                             mean,
                             mean + channels,
                             reinterpret_cast<float*>(call.workspace()),
                             stream_of(call));
  });
}

void run_batch_norm_sums(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    BatchNormBackward<T> op = batch_norm_backward_of<T>(call);
    give_gradients(call, op);
    batch_norm_backward_sums<T>(op, call.attributes<BatchNormAttributes>().lanes, stream_of(call));
    float* const sums = call.output<float>(0);
    sum_lanes(1, op.channels, op.d_beta, sums, stream_of(call));
    sum_lanes(1, op.channels, op.d_gamma, sums + op.channels, stream_of(call));
  });
}

size_t batch_norm_input_gradient_workspace(const OpCall& op) {
  return 2 * static_cast<size_t>(op.input_shape(2).columns()) * sizeof(float);
}

void run_batch_norm_input_gradient(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    BatchNormBackward<T> op = batch_norm_backward_of<T>(call);
    const int64_t lanes = call.input_shape(7)[0];
    auto* const sums = reinterpret_cast<float*>(call.workspace());
    sum_lanes(lanes, 2 * op.channels, call.input<float>(7), sums, stream_of(call));
    op.d_beta = sums;
    op.d_gamma = sums + op.channels;
    op.d_x = call.output<T>(0);
    batch_norm_backward_input<T>(op, lanes, stream_of(call));
  });
}

constexpr Implementation kRows[] = {
    {OpKind::kBatchNorm, "own", run_batch_norm, batch_norm_workspace},
    {OpKind::kBatchNormBackward, "own", run_batch_norm_backward, batch_norm_workspace},
    {OpKind::kBatchStatistics, "own", run_batch_statistics, batch_norm_workspace},
    {OpKind::kBatchNormSums, "own", run_batch_norm_sums, batch_norm_workspace},
    {OpKind::kBatchNormInputGradient,
     "own",
     run_batch_norm_input_gradient,
     batch_norm_input_gradient_workspace},
};

}  // namespace

constinit const Implementations kCudaBatchNorm = kRows;

}  // namespace lockstep::cuda
