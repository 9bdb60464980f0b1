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

enum class BatchNormIn : InputIndex {
  kX,
  kDelta,  // (..., C) or none
  kGamma,
  kBeta,
  kRunningMean,
  kRunningVariance,
  kLaneStatistics  // (L, 2, C) f32 of all lanes, or none
};
enum class BatchNormOut : OutputIndex {
  kY,
  kMean,      // (C) f32 in training, otherwise none
  kVariance,  // likewise
  kMask       // (..., C / 8) u8 or none: see save_relu_masks() in fusion.h
};
// Of batch_norm_backward, batch_norm_sums and batch_norm_input_gradient.
enum class BatchNormBackwardIn : InputIndex {
  kDY,
  // or none; d_y is the sum of both, rounded to their type. Made by fuse_gradient_sums().
  kDY2,
  // What the activation passed, if there are both delta and an activation: y, or the mask.
  // Otherwise x determines it.
  kY,
  kMask,
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
  // or none: without delta, or without activation, as it is d_y then, unless d_y is a sum
  kDDelta,
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
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(BatchNormIn::kX).rows();
  int64_t channels = call.input_shape(BatchNormIn::kX).columns();
  // of lane_statistics; 0 if there are none
  int64_t lanes = call.has_input(BatchNormIn::kLaneStatistics)
                      ? call.input_shape(BatchNormIn::kLaneStatistics)[0]
                      : 0;
  float epsilon = call.attributes<BatchNormAttributes>().epsilon;
  bool relu = call.attributes<BatchNormAttributes>().activation == Activation::kRelu;
  const T* x = call.input<T>(BatchNormIn::kX);                       // (rows, channels)
  const T* delta = call.input<T>(BatchNormIn::kDelta);               // (rows, channels) or null
  const T* gamma = call.input<T>(BatchNormIn::kGamma);               // (channels)
  const T* beta = call.input<T>(BatchNormIn::kBeta);                 // (channels)
  const T* running_mean = call.input<T>(BatchNormIn::kRunningMean);  // (channels)
  const T* running_variance = call.input<T>(BatchNormIn::kRunningVariance);  // (channels)
  // (lanes, 2, channels) or null
  const Wide<T>* lane_statistics = call.input<Wide<T>>(BatchNormIn::kLaneStatistics);
  T* y = call.output<T>(BatchNormOut::kY);                    // (rows, channels). May be x or delta
  Wide<T>* mean = call.output<Wide<T>>(BatchNormOut::kMean);  // (channels); null outside training
  // (channels); null outside training
  Wide<T>* variance = call.output<Wide<T>>(BatchNormOut::kVariance);
  // (rows, channels / 8) or null: bit i % 8 of byte i / 8 is set if element i of y is above 0
  uint8_t* mask = call.output<uint8_t>(BatchNormOut::kMask);
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

// The common inputs of the backward ops.
template <typename T>
struct BatchNormGradientInputs {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(BatchNormBackwardIn::kX).rows();
  int64_t channels = call.input_shape(BatchNormBackwardIn::kX).columns();
  float epsilon = call.attributes<BatchNormAttributes>().epsilon;
  bool relu = call.attributes<BatchNormAttributes>().activation == Activation::kRelu;
  const T* d_y = call.input<T>(BatchNormBackwardIn::kDY);    // (rows, channels)
  const T* d_y2 = call.input<T>(BatchNormBackwardIn::kDY2);  // (rows, channels) or null
  // (rows, channels) and (rows, channels / 8); if both are null, x determines what the activation
  // passed
  const T* y = call.input<T>(BatchNormBackwardIn::kY);
  const uint8_t* mask = call.input<uint8_t>(BatchNormBackwardIn::kMask);
  const T* x = call.input<T>(BatchNormBackwardIn::kX);                    // (rows, channels)
  const T* gamma = call.input<T>(BatchNormBackwardIn::kGamma);            // (channels)
  const T* beta = call.input<T>(BatchNormBackwardIn::kBeta);              // (channels)
  const Wide<T>* mean = call.input<Wide<T>>(BatchNormBackwardIn::kMean);  // (channels)
  const Wide<T>* variance = call.input<Wide<T>>(BatchNormBackwardIn::kVariance);  // (channels)
};

// The parameter gradients that batch_norm_backward and batch_norm_sums write. (channels) each.
template <typename T>
struct BatchNormParameterGradients {
  const OpCall& call = OpCall::none();
  Wide<T>* d_gamma = call.output<Wide<T>>(BatchNormBackwardOut::kDGamma);
  Wide<T>* d_beta = call.output<Wide<T>>(BatchNormBackwardOut::kDBeta);
  Wide<T>* d_running_mean = call.output<Wide<T>>(BatchNormBackwardOut::kDRunningMean);
  Wide<T>* d_running_variance = call.output<Wide<T>>(BatchNormBackwardOut::kDRunningVariance);
};

template <typename T>
struct BatchNormBackward {
  const OpCall& call = OpCall::none();
  BatchNormGradientInputs<T> in = {call};
  // (rows, channels). May be x, d_y or d_y2
  T* d_x = call.output<T>(BatchNormBackwardOut::kDX);
  // (rows, channels) or null. May be d_y, d_y2 or y
  T* d_delta = call.output<T>(BatchNormBackwardOut::kDDelta);
  BatchNormParameterGradients<T> parameters = {call};
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

template <typename T>
struct BatchNormRunning {
  const OpCall& call = OpCall::none();
  int64_t channels = call.input_shape(BatchNormRunningIn::kMean).elements();
  int64_t rows = call.attributes<BatchNormRunningAttributes>().rows;
  const Wide<T>* mean = call.input<Wide<T>>(BatchNormRunningIn::kMean);  // (channels)
  // (channels), biased
  const Wide<T>* variance = call.input<Wide<T>>(BatchNormRunningIn::kVariance);
  Wide<T>* d_running_mean = call.output<Wide<T>>(BatchNormRunningOut::kDRunningMean);  // (channels)
  // (channels): the unbiased variance; the biased one if there is one row
  Wide<T>* d_running_variance = call.output<Wide<T>>(BatchNormRunningOut::kDRunningVariance);
};

template <typename T>
struct BatchStatistics {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(BatchStatisticsIn::kX).rows();
  int64_t channels = call.input_shape(BatchStatisticsIn::kX).columns();
  const T* x = call.input<T>(BatchStatisticsIn::kX);  // (rows, channels)
  // (2, channels): mean, biased variance
  Wide<T>* statistics = call.output<Wide<T>>(BatchStatisticsOut::kStatistics);
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

template <typename T>
struct BatchNormSums {
  const OpCall& call = OpCall::none();
  BatchNormGradientInputs<T> in = {call};
  // all with the same number of rows; mean and variance are over all of them
  int64_t lanes = call.attributes<BatchNormAttributes>().lanes;
  // (2, channels) over this lane's rows: of g, of g xhat
  Wide<T>* sums = call.output<Wide<T>>(BatchNormBackwardOut::kSums);
  // (rows, channels) or null. May be d_y, d_y2 or y
  T* d_delta = call.output<T>(BatchNormBackwardOut::kDDelta);
  BatchNormParameterGradients<T> parameters = {call};
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

template <typename T>
struct BatchNormInputGradient {
  const OpCall& call = OpCall::none();
  // if there is a d_delta, it is d_y here, and relu, d_y2, y and mask are not set
  BatchNormGradientInputs<T> in = {call};
  int64_t lanes = call.input_shape(BatchNormBackwardIn::kAllSums)[0];
  // (lanes, 2, channels)
  const Wide<T>* all_sums = call.input<Wide<T>>(BatchNormBackwardIn::kAllSums);
  T* d_x = call.output<T>(BatchNormBackwardOut::kDX);  // (rows, channels). May be x or d_y
  Wide<T>* workspace = call.workspace<Wide<T>>();      // as the implementation needs
};

}  // namespace lockstep::graph
