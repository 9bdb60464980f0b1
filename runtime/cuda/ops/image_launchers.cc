// Launchers of the ops on images but convolutions: each unpacks an op into the call of its kernel.
// Inputs and outputs are numbered as graph/ops/<op>.h documents.
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/ops/batch_norm.h"
#include "runtime/cuda/ops/image_normalize.h"
#include "runtime/cuda/ops/implementations.h"
#include "runtime/cuda/ops/local_response_norm.h"
#include "runtime/cuda/ops/padded_identity.h"
#include "runtime/cuda/ops/pooling.h"
#include "runtime/graph/ops/batch_norm.h"
#include "runtime/graph/ops/image_normalize.h"

namespace lockstep::cuda {
namespace {

// Elements that a kernel numbers in 32 bits.
constexpr int64_t kMostNumbered = (int64_t{1} << 31) - 1;

bool supports_image_normalize(const OpCall& op) {
  const Shape& x = op.input_shape(0);
  return x.columns() <= kMostImageChannels && x.elements() <= kMostNumbered;
}

// Numbers of images and pixels, whichever of input and output has more.
bool supports_pixels(const OpCall& op) {
  return op.input_shape(0).rows() <= kMostNumbered && op.output_shape(0).rows() <= kMostNumbered;
}

void run_image_normalize(const OpCall& call) {
  const auto& attributes = call.attributes<ImageNormalizeAttributes>();
  by_type(call.output_dtype(0), [&]<typename T>() {
    const Shape& x = call.input_shape(0);
    image_normalize<T>({.images = x[0],
                        .pixels = x[1] * x[2],
                        .x = call.input<uint8_t>(0),
                        .mean = attributes.mean,
                        .std = attributes.std,
                        .lane = context_of(call).lane,
                        .y = call.output<T>(0)},
                       stream_of(call));
  });
}

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

PoolShape pool_shape(const OpCall& call, const Shape& x, const Shape& y) {
  return {x[0], x[1], x[2], x[3], y[1], y[2], call.attributes<PoolAttributes>()};
}

PaddedIdentityShape padded_identity_shape(const OpCall& call, const Shape& x) {
  return {x[0], x[1], x[2], x[3], call.attributes<PaddedIdentityAttributes>()};
}

void run_max_pool(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    max_pool_forward<T>(pool_shape(call, call.input_shape(0), call.output_shape(0)),
                        call.input<T>(0),
                        call.output<T>(0),
                        call.output<uint8_t>(1),
                        stream_of(call));
  });
}

void run_max_pool_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    max_pool_backward<T>(pool_shape(call, call.output_shape(0), call.input_shape(0)),
                         call.input<T>(0),
                         call.input<uint8_t>(1),
                         call.output<T>(0),
                         stream_of(call));
  });
}

void run_avg_pool(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    avg_pool_forward<T>(pool_shape(call, call.input_shape(0), call.output_shape(0)),
                        call.input<T>(0),
                        call.output<T>(0),
                        stream_of(call));
  });
}

void run_avg_pool_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    avg_pool_backward<T>(pool_shape(call, call.output_shape(0), call.input_shape(0)),
                         call.input<T>(0),
                         call.output<T>(0),
                         stream_of(call));
  });
}

void run_global_avg_pool(const OpCall& call) {
  const Shape& x = call.input_shape(0);
  by_type(call.input_dtype(0), [&]<typename T>() {
    global_avg_pool_forward<T>(
        x[0], x[1] * x[2], x[3], call.input<T>(0), call.output<T>(0), stream_of(call));
  });
}

void run_global_avg_pool_backward(const OpCall& call) {
  const Shape& x = call.output_shape(0);
  by_type(call.input_dtype(0), [&]<typename T>() {
    global_avg_pool_backward<T>(
        x[0], x[1] * x[2], x[3], call.input<T>(0), call.output<T>(0), stream_of(call));
  });
}

bool supports_local_response_norm(const OpCall& op) {
  return op.attributes<LocalResponseNormAttributes>().size <= kMostNormChannels;
}

void run_local_response_norm(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    local_response_norm_forward<T>(call.input_shape(0).rows(),
                                   call.input_shape(0).columns(),
                                   call.attributes<LocalResponseNormAttributes>(),
                                   call.input<T>(0),
                                   call.output<T>(0),
                                   stream_of(call));
  });
}

void run_local_response_norm_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    local_response_norm_backward<T>(call.input_shape(0).rows(),
                                    call.input_shape(0).columns(),
                                    call.attributes<LocalResponseNormAttributes>(),
                                    call.input<T>(0),
                                    call.input<T>(1),
                                    call.output<T>(0),
                                    stream_of(call));
  });
}

void run_padded_identity(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    padded_identity_forward<T>(padded_identity_shape(call, call.input_shape(0)),
                               call.input<T>(0),
                               call.output<T>(0),
                               stream_of(call));
  });
}

void run_padded_identity_backward(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    padded_identity_backward<T>(padded_identity_shape(call, call.output_shape(0)),
                                call.input<T>(0),
                                call.output<T>(0),
                                stream_of(call));
  });
}

constexpr Implementation kImageNormalizeRows[] = {
    {.kind = OpKind::kImageNormalize,
     .name = "own",
     .run = run_image_normalize,
     .supports = supports_image_normalize},
};
constexpr Implementation kBatchNormRows[] = {
    {OpKind::kBatchNorm, "own", run_batch_norm, batch_norm_workspace},
    {OpKind::kBatchNormBackward, "own", run_batch_norm_backward, batch_norm_workspace},
    {OpKind::kBatchStatistics, "own", run_batch_statistics, batch_norm_workspace},
    {OpKind::kBatchNormSums, "own", run_batch_norm_sums, batch_norm_workspace},
    {OpKind::kBatchNormInputGradient,
     "own",
     run_batch_norm_input_gradient,
     batch_norm_input_gradient_workspace},
};
constexpr Implementation kPoolingRows[] = {
    {.kind = OpKind::kMaxPool, .name = "own", .run = run_max_pool, .supports = supports_pixels},
    {.kind = OpKind::kMaxPoolBackward,
     .name = "own",
     .run = run_max_pool_backward,
     .supports = supports_pixels},
    {.kind = OpKind::kAvgPool, .name = "own", .run = run_avg_pool, .supports = supports_pixels},
    {.kind = OpKind::kAvgPoolBackward,
     .name = "own",
     .run = run_avg_pool_backward,
     .supports = supports_pixels},
    {.kind = OpKind::kGlobalAvgPool,
     .name = "own",
     .run = run_global_avg_pool,
     .supports = supports_pixels},
    {.kind = OpKind::kGlobalAvgPoolBackward,
     .name = "own",
     .run = run_global_avg_pool_backward,
     .supports = supports_pixels},
};
constexpr Implementation kLocalResponseNormRows[] = {
    {.kind = OpKind::kLocalResponseNorm,
     .name = "own",
     .run = run_local_response_norm,
     .supports = supports_local_response_norm},
    {.kind = OpKind::kLocalResponseNormBackward,
     .name = "own",
     .run = run_local_response_norm_backward,
     .supports = supports_local_response_norm},
};
constexpr Implementation kPaddedIdentityRows[] = {
    {.kind = OpKind::kPaddedIdentity,
     .name = "own",
     .run = run_padded_identity,
     .supports = supports_pixels},
    {.kind = OpKind::kPaddedIdentityBackward,
     .name = "own",
     .run = run_padded_identity_backward,
     .supports = supports_pixels},
};

}  // namespace

constinit const Implementations kCudaImageNormalize = kImageNormalizeRows;
constinit const Implementations kCudaBatchNorm = kBatchNormRows;
constinit const Implementations kCudaPooling = kPoolingRows;
constinit const Implementations kCudaLocalResponseNorm = kLocalResponseNormRows;
constinit const Implementations kCudaPaddedIdentity = kPaddedIdentityRows;

}  // namespace lockstep::cuda
