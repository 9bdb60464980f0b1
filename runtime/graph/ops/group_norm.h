#pragma once
// group_norm: y = (x - mean) rstd gamma + beta, rstd = 1 / sqrt(variance + epsilon). Mean and
// biased variance are over a sample's pixels and the C / G channels of a group (Wu and He 2018,
// equation 7). G = C is instance norm, G = 1 a layer norm of whole samples.
// group_norm_backward: with g = d_y gamma, xhat = (x - mean) rstd and means over the group,
//   d_x = rstd (g - mean(g) - xhat mean(g xhat)),
//   d_gamma = sum over samples and pixels of d_y xhat, d_beta = sum over the same of d_y.
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class GroupNormIn : InputIndex { kX, kGamma, kBeta };
enum class GroupNormOut : OutputIndex { kY, kMean, kRstd };
enum class GroupNormBackwardIn : InputIndex { kDY, kX, kGamma, kMean, kRstd };
enum class GroupNormBackwardOut : OutputIndex { kDX, kDGamma, kDBeta };

struct GroupNormAttributes {
  int64_t groups = 1;
  float epsilon = 1e-5f;
};

namespace ops {

// Normalises each sample's groups of channels of x (N, ..., C). gamma and beta are parameters of C
// elements; each may be kNoTensor. groups divides C.
TensorId group_norm(GraphBuilder& builder,
                    const std::string& name,
                    TensorId x,
                    TensorId gamma,
                    TensorId beta,
                    const GroupNormAttributes& attributes);

}  // namespace ops

// The data to normalise: samples of pixels of channels.
struct GroupNormShape {
  int64_t samples, pixels, channels, groups;

  static GroupNormShape of(const Shape& x, int64_t groups) {
    return {.samples = x[0],
            .pixels = x.elements() / (x[0] * x.columns()),
            .channels = x.columns(),
            .groups = groups};
  }
  LOCKSTEP_HD int64_t group_channels() const { return channels / groups; }
};

template <typename T>
struct GroupNormForward {
  GroupNormShape shape;
  float epsilon;
  const T* x;      // (N, P, C)
  const T* gamma;  // (C) or null
  const T* beta;   // (C) or null
  T* y;            // (N, P, C)
  Wide<T>* mean;   // (N, G)
  Wide<T>* rstd;   // (N, G)
  Wide<T>* workspace;

  static GroupNormForward of(const OpCall& op) {
    const auto& attributes = op.attributes<GroupNormAttributes>();
    return {.shape = GroupNormShape::of(op.input_shape(GroupNormIn::kX), attributes.groups),
            .epsilon = attributes.epsilon,
            .x = op.input<T>(GroupNormIn::kX),
            .gamma = op.input<T>(GroupNormIn::kGamma),
            .beta = op.input<T>(GroupNormIn::kBeta),
            .y = op.output<T>(GroupNormOut::kY),
            .mean = op.output<Wide<T>>(GroupNormOut::kMean),
            .rstd = op.output<Wide<T>>(GroupNormOut::kRstd),
            .workspace = op.workspace<Wide<T>>()};
  }
};

template <typename T>
struct GroupNormBackward {
  GroupNormShape shape;
  const T* d_y;         // (N, P, C)
  const T* x;           // (N, P, C)
  const T* gamma;       // (C) or null
  const Wide<T>* mean;  // (N, G)
  const Wide<T>* rstd;  // (N, G)
  T* d_x;               // (N, P, C). May be d_y
  Wide<T>* d_gamma;     // (C) or null
  Wide<T>* d_beta;      // (C) or null
  Wide<T>* workspace;

  static GroupNormBackward of(const OpCall& op) {
    return {.shape = GroupNormShape::of(op.input_shape(GroupNormBackwardIn::kDY),
                                        op.attributes<GroupNormAttributes>().groups),
            .d_y = op.input<T>(GroupNormBackwardIn::kDY),
            .x = op.input<T>(GroupNormBackwardIn::kX),
            .gamma = op.input<T>(GroupNormBackwardIn::kGamma),
            .mean = op.input<Wide<T>>(GroupNormBackwardIn::kMean),
            .rstd = op.input<Wide<T>>(GroupNormBackwardIn::kRstd),
            .d_x = op.output<T>(GroupNormBackwardOut::kDX),
            .d_gamma = op.output<Wide<T>>(GroupNormBackwardOut::kDGamma),
            .d_beta = op.output<Wide<T>>(GroupNormBackwardOut::kDBeta),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep::graph
