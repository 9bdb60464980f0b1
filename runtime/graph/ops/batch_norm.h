#pragma once
// batch_norm: y = activation((x - mean) rstd gamma + beta + delta), rstd = 1 / sqrt(variance +
// epsilon), by channel. In training, mean and (biased) variance are those of this lane's batch,
// otherwise the running statistics.
// batch_norm_backward: let g = d_y where the activation passes it, xhat = (x - mean) rstd, and all
// sums be over the M rows. Then d_beta = sum g, d_gamma = sum g xhat, d_x = gamma rstd (g - d_beta
// / M - xhat d_gamma / M), d_delta = g. The gradients of the running statistics are this lane's
// measurements: its mean and its unbiased variance.
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.
// batch_norm_running: only the gradients of the running statistics, if nothing below is trained.
//
// Synchronised over L lanes, sums over rows include the other lanes' rows. Forward:
//   batch_statistics: mean and biased variance of the lane;
//   gather_lanes: those of every lane, which batch_norm reads.
// Backward, with the same formulas and M rows of all lanes:
//   batch_norm_sums: the lane's sums of g and of g xhat in place of d_x;
//   gather_lanes: the sums of every lane; batch_norm_input_gradient: d_x from all sums. If there is
//   a d_delta, it replaces d_y there, and y is not needed.

#include <cstdint>
#include <string>

#include "runtime/graph/activation.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class BatchNormIn : InputIndex {
  kX,
  kDelta,  // (..., C) or none
  kGamma,
  kBeta,
  kRunningMean,
  kRunningVariance,
  kLaneStatistics  // (L, 2, C) f32 of all lanes, or none
};
enum class BatchNormOut : OutputIndex { kY, kMean, kVariance };  // in training all, (C) f32 each
// Of batch_norm_backward, batch_norm_sums and batch_norm_input_gradient.
enum class BatchNormBackwardIn : InputIndex {
  kDY,
  kY,  // if there are both delta and an activation; otherwise x gives what the activation passed
  kX,
  kGamma,
  kBeta,
  kMean,
  kVariance,
  kAllSums  // batch_norm_input_gradient: (L, 2, C) f32
};
enum class BatchNormBackwardOut : OutputIndex {
  kDX,
  kSums = kDX,  // batch_norm_sums: (2, C) f32
  kDDelta,      // or none: without delta, or without activation, as it is d_y then
  kDGamma,
  kDBeta,
  kDRunningMean,
  kDRunningVariance
};
enum class BatchNormRunningIn : InputIndex { kMean, kVariance };
enum class BatchNormRunningOut : OutputIndex { kDRunningMean, kDRunningVariance };
enum class BatchStatisticsIn : InputIndex { kX };
enum class BatchStatisticsOut : OutputIndex { kStatistics };  // (2, C) f32
enum class GatherLanesIn : InputIndex { kLane };              // (2, C) f32
enum class GatherLanesOut : OutputIndex { kAll };             // (L, 2, C) f32

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
    return {.rows = op.input_shape(BatchNormIn::kX).rows(),
            .channels = op.input_shape(BatchNormIn::kX).columns(),
            .lanes = op.has_input(BatchNormIn::kLaneStatistics)
                         ? op.input_shape(BatchNormIn::kLaneStatistics)[0]
                         : 0,
            .epsilon = attributes.epsilon,
            .relu = attributes.activation == Activation::kRelu,
            .x = op.input<T>(BatchNormIn::kX),
            .delta = op.input<T>(BatchNormIn::kDelta),
            .gamma = op.input<T>(BatchNormIn::kGamma),
            .beta = op.input<T>(BatchNormIn::kBeta),
            .running_mean = op.input<T>(BatchNormIn::kRunningMean),
            .running_variance = op.input<T>(BatchNormIn::kRunningVariance),
            .lane_statistics = op.input<Wide<T>>(BatchNormIn::kLaneStatistics),
            .y = op.output<T>(BatchNormOut::kY),
            .mean = op.output<Wide<T>>(BatchNormOut::kMean),
            .variance = op.output<Wide<T>>(BatchNormOut::kVariance),
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
    return {.rows = op.input_shape(BatchNormBackwardIn::kX).rows(),
            .channels = op.input_shape(BatchNormBackwardIn::kX).columns(),
            .epsilon = attributes.epsilon,
            .relu = attributes.activation == Activation::kRelu,
            .d_y = op.input<T>(BatchNormBackwardIn::kDY),
            .y = op.input<T>(BatchNormBackwardIn::kY),
            .x = op.input<T>(BatchNormBackwardIn::kX),
            .gamma = op.input<T>(BatchNormBackwardIn::kGamma),
            .beta = op.input<T>(BatchNormBackwardIn::kBeta),
            .mean = op.input<Wide<T>>(BatchNormBackwardIn::kMean),
            .variance = op.input<Wide<T>>(BatchNormBackwardIn::kVariance)};
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
    return {.d_gamma = op.output<Wide<T>>(BatchNormBackwardOut::kDGamma),
            .d_beta = op.output<Wide<T>>(BatchNormBackwardOut::kDBeta),
            .d_running_mean = op.output<Wide<T>>(BatchNormBackwardOut::kDRunningMean),
            .d_running_variance = op.output<Wide<T>>(BatchNormBackwardOut::kDRunningVariance)};
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
            .d_x = op.output<T>(BatchNormBackwardOut::kDX),
            .d_delta = op.output<T>(BatchNormBackwardOut::kDDelta),
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
    return {.channels = op.input_shape(BatchNormRunningIn::kMean).elements(),
            .rows = op.attributes<BatchNormRunningAttributes>().rows,
            .mean = op.input<Wide<T>>(BatchNormRunningIn::kMean),
            .variance = op.input<Wide<T>>(BatchNormRunningIn::kVariance),
            .d_running_mean = op.output<Wide<T>>(BatchNormRunningOut::kDRunningMean),
            .d_running_variance = op.output<Wide<T>>(BatchNormRunningOut::kDRunningVariance)};
  }
};

template <typename T>
struct BatchStatistics {
  int64_t rows, channels;
  const T* x;           // (rows, channels)
  Wide<T>* statistics;  // (2, channels): mean, biased variance
  Wide<T>* workspace;   // as the implementation needs

  static BatchStatistics of(const OpCall& op) {
    return {.rows = op.input_shape(BatchStatisticsIn::kX).rows(),
            .channels = op.input_shape(BatchStatisticsIn::kX).columns(),
            .x = op.input<T>(BatchStatisticsIn::kX),
            .statistics = op.output<Wide<T>>(BatchStatisticsOut::kStatistics),
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
            .sums = op.output<Wide<T>>(BatchNormBackwardOut::kSums),
            .d_delta = op.output<T>(BatchNormBackwardOut::kDDelta),
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
            .lanes = op.input_shape(BatchNormBackwardIn::kAllSums)[0],
            .all_sums = op.input<Wide<T>>(BatchNormBackwardIn::kAllSums),
            .d_x = op.output<T>(BatchNormBackwardOut::kDX),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep::graph
