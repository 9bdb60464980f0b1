#include "runtime/graph/ops/cast.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::cast(GraphBuilder& builder, const std::string& name, TensorId x) {
  if (builder[x].dtype == builder.options().compute) return x;
  LOCKSTEP_CHECK(builder[x].dtype == DType::kF32, "{}: only f32 is converted ", name);
  const TensorId y = builder.activation_tensor(name, builder.shape(x));
  builder.append({OpKind::kCast, name, {x}, {y}, {}});
  return y;
}

const OpSchema kCastSchema = {nullptr, elementwise_flops<1>, {}, /*joins_lanes=*/true};

}  // namespace lockstep::graph
