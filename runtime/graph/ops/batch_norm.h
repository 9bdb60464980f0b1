#pragma once
// batch_norm: y = activation((x - mean) rstd gamma + beta + delta), rstd = 1 / sqrt(variance +
// epsilon), by channel. In training, mean and (biased) variance are those of this lane's batch,
// otherwise the running statistics.
//   inputs  x (..., C), delta (..., C) or none, gamma (C), beta (C), running_mean (C),
//   running_variance (C), statistics (L, 2, C) f32 of all lanes, or none
//   outputs y (..., C); in training also mean (C) and variance (C), f32
// batch_norm_backward: let g = d_y where the activation passes it, xhat = (x - mean) rstd, and all
// sums be over the M rows. Then d_beta = sum g, d_gamma = sum g xhat, d_x = gamma rstd (g - d_beta
// / M - xhat d_gamma / M), d_delta = g. The gradients of the running statistics are this lane's
// measurements: its mean and its unbiased variance.
//   inputs  d_y (..., C), y (..., C) if there are both delta and an activation (otherwise x
//   determines what the activation passed), x, gamma, beta, mean, variance
//   outputs d_x, d_delta or none (without delta, or without activation: then it is d_y), d_gamma,
//   d_beta, d_running_mean, d_running_variance
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.
// batch_norm_running: only the gradients of the running statistics, if nothing below is trained.
//   inputs  mean (C), variance (C)
//   outputs d_running_mean, d_running_variance (C) each
//
// Synchronised over L lanes, sums over rows include the other lanes' rows. Forward:
//   batch_statistics: x -> (2, C) f32, mean and biased variance of the lane;
//   gather_lanes: (2, C) -> (L, 2, C), every lane's; batch_norm reads these.
// Backward, with the same formulas and M rows of all lanes:
//   batch_norm_sums: inputs as batch_norm_backward; outputs sums (2, C) f32 of g and of g xhat,
//   d_delta, d_gamma, d_beta, d_running_mean, d_running_variance;
//   gather_lanes: sums -> (L, 2, C); batch_norm_input_gradient: the same inputs and all sums ->
//   d_x. If there is a d_delta, it replaces d_y there, and y is not needed.

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct BatchNormAttributes {
  float epsilon = 1e-5f;
  Activation activation = Activation::kNone;  // or kRelu
  // Training: statistics of all lanes together instead of each lane's batch.
  bool synchronised = false;
  int64_t lanes = 1;  // of the run, if synchronised
};

struct BatchNormRunningAttributes {
  int64_t rows = 0;  // over which mean and variance were computed
};

namespace ops {

struct BatchNormParameters {
  TensorId gamma, beta, running_mean, running_variance;  // (C) each
};
// activation((x - mean) / sqrt(variance + epsilon) * gamma + beta + delta) by channel: in training
// with mean and variance of this lane's batch, otherwise with the running ones. delta may be
// kNoTensor.
TensorId batch_norm(GraphBuilder& builder,
                    const std::string& name,
                    TensorId x,
                    TensorId delta,
                    const BatchNormParameters& parameters,
                    const BatchNormAttributes& attributes);

}  // namespace ops

template <typename T>
struct BatchNormForward {
  int64_t rows, channels;
  int64_t lanes;  // of lane_statistics; 0 if there are none
  float epsilon;
  bool relu;
  const T* x;                      // (rows, channels)
  const T* delta;                  // (rows, channels) or null
  const T* gamma;                  // (channels)
  const T* beta;                   // (channels)
  const T* running_mean;           // (channels)
  const T* running_variance;       // (channels)
  const Wide<T>* lane_statistics;  // (lanes, 2, channels) or null
  T* y;                            // (rows, channels). May be x or delta
  Wide<T>* mean;                   // (channels); null outside training
  Wide<T>* variance;               // (channels); null outside training
  Wide<T>* workspace;              // as the implementation needs

  static BatchNormForward of(const OpCall& op) {
    const auto& attributes = op.attributes<BatchNormAttributes>();
    return {.rows = op.input_shape(0).rows(),
            .channels = op.input_shape(0).columns(),
            .lanes = op.has_input(6) ? op.input_shape(6)[0] : 0,
            .epsilon = attributes.epsilon,
            .relu = attributes.activation == Activation::kRelu,
            .x = op.input<T>(0),
            .delta = op.input<T>(1),
            .gamma = op.input<T>(2),
            .beta = op.input<T>(3),
            .running_mean = op.input<T>(4),
            .running_variance = op.input<T>(5),
            .lane_statistics = op.input<Wide<T>>(6),
            .y = op.output<T>(0),
            .mean = op.output<Wide<T>>(1),
            .variance = op.output<Wide<T>>(2),
            .workspace = op.workspace<Wide<T>>()};
  }
};

// The common inputs of the backward ops.
template <typename T>
struct BatchNormGradientInputs {
  int64_t rows, channels;
  float epsilon;
  bool relu;
  const T* d_y;             // (rows, channels)
  const T* y;               // (rows, channels); null: x determines what the activation passed
  const T* x;               // (rows, channels)
  const T* gamma;           // (channels)
  const T* beta;            // (channels)
  const Wide<T>* mean;      // (channels)
  const Wide<T>* variance;  // (channels)

  static BatchNormGradientInputs of(const OpCall& op) {
    const auto& attributes = op.attributes<BatchNormAttributes>();
    return {.rows = op.input_shape(2).rows(),
            .channels = op.input_shape(2).columns(),
            .epsilon = attributes.epsilon,
            .relu = attributes.activation == Activation::kRelu,
            .d_y = op.input<T>(0),
            .y = op.input<T>(1),
            .x = op.input<T>(2),
            .gamma = op.input<T>(3),
            .beta = op.input<T>(4),
            .mean = op.input<Wide<T>>(5),
            .variance = op.input<Wide<T>>(6)};
  }
};

// The parameter gradients that batch_norm_backward and batch_norm_sums write. (channels) each.
template <typename T>
struct BatchNormParameterGradients {
  Wide<T>* d_gamma;
  Wide<T>* d_beta;
  Wide<T>* d_running_mean;
  Wide<T>* d_running_variance;

  static BatchNormParameterGradients of(const OpCall& op) {
    return {.d_gamma = op.output<Wide<T>>(2),
            .d_beta = op.output<Wide<T>>(3),
            .d_running_mean = op.output<Wide<T>>(4),
            .d_running_variance = op.output<Wide<T>>(5)};
  }
};

template <typename T>
struct BatchNormBackward {
  BatchNormGradientInputs<T> in;
  T* d_x;      // (rows, channels). May be x or d_y
  T* d_delta;  // (rows, channels) or null. May be d_y or y
  BatchNormParameterGradients<T> parameters;
  Wide<T>* workspace;  // as the implementation needs

  static BatchNormBackward of(const OpCall& op) {
    return {.in = BatchNormGradientInputs<T>::of(op),
            .d_x = op.output<T>(0),
            .d_delta = op.output<T>(1),
            .parameters = BatchNormParameterGradients<T>::of(op),
            .workspace = op.workspace<Wide<T>>()};
  }
};

template <typename T>
struct BatchNormRunning {
  int64_t channels, rows;
  const Wide<T>* mean;      // (channels)
  const Wide<T>* variance;  // (channels), biased
  Wide<T>* d_running_mean;  // (channels)
  // (channels): the unbiased variance; the biased one if there is one row
  Wide<T>* d_running_variance;

  static BatchNormRunning of(const OpCall& op) {
    return {.channels = op.input_shape(0).elements(),
            .rows = op.attributes<BatchNormRunningAttributes>().rows,
            .mean = op.input<Wide<T>>(0),
            .variance = op.input<Wide<T>>(1),
            .d_running_mean = op.output<Wide<T>>(0),
            .d_running_variance = op.output<Wide<T>>(1)};
  }
};

template <typename T>
struct BatchStatistics {
  int64_t rows, channels;
  const T* x;           // (rows, channels)
  Wide<T>* statistics;  // (2, channels): mean, biased variance
  Wide<T>* workspace;   // as the implementation needs

  static BatchStatistics of(const OpCall& op) {
    return {.rows = op.input_shape(0).rows(),
            .channels = op.input_shape(0).columns(),
            .x = op.input<T>(0),
            .statistics = op.output<Wide<T>>(0),
            .workspace = op.workspace<Wide<T>>()};
  }
};

template <typename T>
struct BatchNormSums {
  BatchNormGradientInputs<T> in;
  int64_t lanes;  // all with the same number of rows; mean and variance are over all of them
  Wide<T>* sums;  // (2, channels) over this lane's rows: of g, of g xhat
  T* d_delta;     // (rows, channels) or null. May be d_y or y
  BatchNormParameterGradients<T> parameters;
  Wide<T>* workspace;  // as the implementation needs

  static BatchNormSums of(const OpCall& op) {
    return {.in = BatchNormGradientInputs<T>::of(op),
            .lanes = op.attributes<BatchNormAttributes>().lanes,
            .sums = op.output<Wide<T>>(0),
            .d_delta = op.output<T>(1),
            .parameters = BatchNormParameterGradients<T>::of(op),
            .workspace = op.workspace<Wide<T>>()};
  }
};

template <typename T>
struct BatchNormInputGradient {
  // if there is a d_delta, it is d_y here, and relu and y are not set
  BatchNormGradientInputs<T> in;
  int64_t lanes;
  const Wide<T>* all_sums;  // (lanes, 2, channels)
  T* d_x;                   // (rows, channels). May be x or d_y
  Wide<T>* workspace;       // as the implementation needs

  static BatchNormInputGradient of(const OpCall& op) {
    return {.in = BatchNormGradientInputs<T>::of(op),
            .lanes = op.input_shape(7)[0],
            .all_sums = op.input<Wide<T>>(7),
            .d_x = op.output<T>(0),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep
