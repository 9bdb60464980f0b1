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
  const OpCall& call = OpCall::none();
  GroupNormShape shape = GroupNormShape::of(call.input_shape(GroupNormIn::kX),
                                            call.attributes<GroupNormAttributes>().groups);
  float epsilon = call.attributes<GroupNormAttributes>().epsilon;
  const T* x = call.input<T>(GroupNormIn::kX);                // (N, P, C)
  const T* gamma = call.input<T>(GroupNormIn::kGamma);        // (C) or null
  const T* beta = call.input<T>(GroupNormIn::kBeta);          // (C) or null
  T* y = call.output<T>(GroupNormOut::kY);                    // (N, P, C)
  Wide<T>* mean = call.output<Wide<T>>(GroupNormOut::kMean);  // (N, G)
  Wide<T>* rstd = call.output<Wide<T>>(GroupNormOut::kRstd);  // (N, G)
  Wide<T>* workspace = call.workspace<Wide<T>>();
};

template <typename T>
struct GroupNormBackward {
  const OpCall& call = OpCall::none();
  GroupNormShape shape = GroupNormShape::of(call.input_shape(GroupNormBackwardIn::kDY),
                                            call.attributes<GroupNormAttributes>().groups);
  const T* d_y = call.input<T>(GroupNormBackwardIn::kDY);                  // (N, P, C)
  const T* x = call.input<T>(GroupNormBackwardIn::kX);                     // (N, P, C)
  const T* gamma = call.input<T>(GroupNormBackwardIn::kGamma);             // (C) or null
  const Wide<T>* mean = call.input<Wide<T>>(GroupNormBackwardIn::kMean);   // (N, G)
  const Wide<T>* rstd = call.input<Wide<T>>(GroupNormBackwardIn::kRstd);   // (N, G)
  T* d_x = call.output<T>(GroupNormBackwardOut::kDX);                      // (N, P, C). May be d_y
  Wide<T>* d_gamma = call.output<Wide<T>>(GroupNormBackwardOut::kDGamma);  // (C) or null
  Wide<T>* d_beta = call.output<Wide<T>>(GroupNormBackwardOut::kDBeta);    // (C) or null
  Wide<T>* workspace = call.workspace<Wide<T>>();
};

}  // namespace lockstep::graph
