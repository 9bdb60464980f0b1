#include "runtime/graph/ops/image_normalize.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::image_normalize(GraphBuilder& builder,
                              const std::string& name,
                              TensorId x,
                              const ImageNormalizeAttributes& attributes) {
  const Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(shape.rank() == 4 && builder[x].dtype == DType::kU8, "{}: x ", name);
  const auto channels = static_cast<size_t>(shape.columns());
  LOCKSTEP_CHECK(attributes.mean.size() == channels && attributes.std.size() == channels,
                 "{}: {} channels ",
                 name,
                 channels);
  const TensorId y = builder.activation_tensor(name, shape);
  builder.append({OpKind::kImageNormalize, name, {x}, {y}, attributes});
  return y;
}

const OpSchema kImageNormalizeSchema = {nullptr, elementwise_flops<2>, {}};

}  // namespace lockstep::graph
