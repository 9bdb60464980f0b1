#pragma once
// image_normalize: y = (x / 255 - mean) / std by channel, of mixtures of two images each where
// LaneContext::mix is below 1. Stands where images enter the graph; it has no gradient.
//   inputs x (N, H, W, C) u8; outputs y (N, H, W, C)

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct ImageNormalizeAttributes {
  std::vector<float> mean, std;  // (C) each, of pixels in [0, 1]
};

namespace ops {

// (x / 255 - mean) / std of x (N, H, W, C) u8, in the graph's compute type. No gradient passes.
TensorId image_normalize(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         const ImageNormalizeAttributes& attributes);

}  // namespace ops
}  // namespace lockstep
