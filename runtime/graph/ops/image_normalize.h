#pragma once
// image_normalize: y = (x / 255 - mean) / std by channel, as one multiply-add. If LaneContext::mix
// is below 1, image i of the first `valid` ones, valid = min(valid_rows, images), first becomes mix
// times itself plus 1 - mix times image valid - 1 - i. Mixing before normalising gives the same
// result because the weights add up to 1. It is computed as mix (x - other) + other, so an image
// mixed with itself does not change. For images as inputs of the graph; it has no gradient.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class ImageNormalizeIn : InputIndex { kX };
enum class ImageNormalizeOut : OutputIndex { kY };

struct ImageNormalizeAttributes {
  std::vector<float> mean, std;  // (C) each, of pixels scaled to [0, 1]
};

namespace ops {

// (x / 255 - mean) / std for x (N, H, W, C) u8, in the graph's compute type. Gradients do not flow
// through it.
TensorId image_normalize(GraphBuilder& builder,
                         const std::string& name,
                         TensorId x,
                         const ImageNormalizeAttributes& attributes);

}  // namespace ops

template <typename T>
struct ImageNormalize {
  const OpCall& call = OpCall::none();
  int64_t images = call.input_shape(ImageNormalizeIn::kX)[0];
  int64_t channels = call.input_shape(ImageNormalizeIn::kX)[3];
  int64_t pixels = call.input_shape(ImageNormalizeIn::kX).rows() / images;  // of one image
  // (channels) each, on the host
  const float* mean = call.attributes<ImageNormalizeAttributes>().mean.data();
  const float* std = call.attributes<ImageNormalizeAttributes>().std.data();
  const uint8_t* x = call.input<uint8_t>(ImageNormalizeIn::kX);  // (images, pixels, channels)
  T* y = call.output<T>(ImageNormalizeOut::kY);                  // (images, pixels, channels)
  Wide<T>* workspace = call.workspace<Wide<T>>();                // as the implementation needs

  // y = x scale + offset.
  float scale(int64_t channel) const {
    return static_cast<float>(1 / (255 * static_cast<double>(std[channel])));
  }
  float offset(int64_t channel) const {
    return static_cast<float>(-mean[channel] / static_cast<double>(std[channel]));
  }
};

}  // namespace lockstep::graph
