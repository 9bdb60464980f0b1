// image_normalize: y = (x / 255 - mean) / std by channel, of mixtures of two images each where
// LaneContext::mix is below 1. Stands where images enter the graph; it has no gradient.
//   inputs x (N, H, W, C) u8; outputs y (N, H, W, C)
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId GraphBuilder::image_normalize(const std::string& name,
                                       TensorId x,
                                       const ImageNormalizeAttributes& attributes) {
  const Shape shape = graph_.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4 && graph_[x].dtype == DType::kU8, "{}: x ", name);
  const auto channels = static_cast<size_t>(shape.columns());
  LOCKSTEP_CHECK(attributes.mean.size() == channels && attributes.std.size() == channels,
                 "{}: {} channels ",
                 name,
                 channels);
  const TensorId y = activation_tensor(name, shape);
  graph_.ops.push_back({OpKind::kImageNormalize, name, {x}, {y}, attributes});
  return y;
}

const OpSchema kImageNormalizeSchema = {"image_normalize", nullptr, elementwise_flops<2>, {}};

}  // namespace lockstep
