// Launchers of the ops on images but convolutions: each unpacks an op into the call of its kernel.
// Inputs and outputs are numbered as graph/ops/<op>.cc documents.
#include "runtime/cuda/batch_norm.h"
#include "runtime/cuda/by_type.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/image_normalize.h"
#include "runtime/cuda/launchers.h"
#include "runtime/cuda/local_response_norm.h"
#include "runtime/cuda/padded_identity.h"
#include "runtime/cuda/pooling.h"

namespace lockstep::cuda {
namespace {

Stream stream_of(const OpCall& call) { return call.device<LaunchContext>().stream; }

// Elements that a kernel numbers in 32 bits.
constexpr int64_t kMostNumbered = (int64_t{1} << 31) - 1;

}  // namespace

bool supports_image_normalize(const Graph& graph, const Op& op) {
  const Shape& x = graph.shape(op.inputs[0]);
  return x.columns() <= kMostImageChannels && x.elements() <= kMostNumbered;
}

// Numbers of images and pixels, whichever of input and output has more.
bool supports_pixels(const Graph& graph, const Op& op) {
  return graph.shape(op.inputs[0]).rows() <= kMostNumbered &&
         graph.shape(op.outputs[0]).rows() <= kMostNumbered;
}

void run_image_normalize(const OpCall& call) {
  const auto& attributes = call.attributes<ImageNormalizeAttributes>();
  by_type(call.output_dtype(0), [&]<typename T>() {
    image_normalize<T>(call.input<uint8_t>(0),
                       call.input_shape(0).rows(),
                       attributes.mean,
                       attributes.std,
                       call.output<T>(0),
                       stream_of(call));
  });
}

size_t batch_norm_workspace(const Graph& graph, const Op& op) {
  const Shape& x = graph.shape(op.inputs[0]);
  return batch_norm_workspace_bytes(x.rows(), x.columns());
}

namespace {

template <typename T, typename S>
void normalise(const OpCall& call, const S* mean, const S* variance) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  batch_norm_forward<T, S>({.rows = call.input_shape(0).rows(),
                            .channels = call.input_shape(0).columns(),
                            .epsilon = attributes.epsilon,
                            .relu = attributes.activation == Activation::kRelu,
                            .x = call.input<T>(0),
                            .delta = call.input<T>(1),
                            .gain = call.input<T>(2),
                            .bias = call.input<T>(3),
                            .mean = mean,
                            .variance = variance,
                            .y = call.output<T>(0)},
                           stream_of(call));
}

}  // namespace

// Evaluation reads the running statistics as all parameters are stored, so rounded to 16 bits where
// the ops compute in such: one part in 500 of each at most.
void run_batch_norm(const OpCall& call) {
  by_type(call.input_dtype(0), [&]<typename T>() {
    if (!call.training()) return normalise<T>(call, call.input<T>(4), call.input<T>(5));
    const float *mean = call.output<float>(1), *variance = call.output<float>(2);
    batch_norm_statistics<T>(call.input<T>(0),
                             call.input_shape(0).rows(),
                             call.input_shape(0).columns(),
                             call.output<float>(1),
                             call.output<float>(2),
                             reinterpret_cast<float*>(call.workspace()),
                             stream_of(call));
    normalise<T>(call, mean, variance);
  });
}

void run_batch_norm_backward(const OpCall& call) {
  const auto& attributes = call.attributes<BatchNormAttributes>();
  by_type(call.input_dtype(0), [&]<typename T>() {
    batch_norm_backward<T>({.rows = call.input_shape(0).rows(),
                            .channels = call.input_shape(0).columns(),
                            .epsilon = attributes.epsilon,
                            .relu = attributes.activation == Activation::kRelu,
                            .d_y = call.input<T>(0),
                            .y = call.input<T>(1),
                            .x = call.input<T>(2),
                            .gain = call.input<T>(3),
                            .bias = call.input<T>(4),
                            .mean = call.input<float>(5),
                            .variance = call.input<float>(6),
                            .d_x = call.output<T>(0),
                            .d_delta = call.output<T>(1),
                            .d_gain = call.output<float>(2),
                            .d_bias = call.output<float>(3),
                            .batch_mean = call.output<float>(4),
                            .unbiased_variance = call.output<float>(5),
                            .workspace = reinterpret_cast<float*>(call.workspace())},
                           stream_of(call));
  });
}

namespace {

PoolShape pool_shape(const OpCall& call, const Shape& x, const Shape& y) {
  return {x[0], x[1], x[2], x[3], y[1], y[2], call.attributes<PoolAttributes>()};
}

PaddedIdentityShape padded_identity_shape(const OpCall& call, const Shape& x) {
  return {x[0], x[1], x[2], x[3], call.attributes<PaddedIdentityAttributes>()};
}

}  // namespace

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

bool supports_local_response_norm(const Graph&, const Op& op) {
  return op.as<LocalResponseNormAttributes>().size <= kMostNormChannels;
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

}  // namespace lockstep::cuda
