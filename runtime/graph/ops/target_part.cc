#include "runtime/graph/ops/target_part.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

TensorId ops::target_part(GraphBuilder& builder,
                          const std::string& name,
                          TensorId record,
                          int64_t first,
                          const Shape& shape,
                          DType type) {
  const Shape from = builder.shape(record);
  LOCKSTEP_CHECK(from.rank() == 2 && builder[record].dtype == DType::kI32 && shape[0] == from[0] &&
                     (type == DType::kI32 || type == DType::kF32),
                 "{} ",
                 name);
  LOCKSTEP_CHECK(first >= 0 && first + shape.elements() / shape[0] <= from[1], "{} ", name);
  const TensorId part = builder.tensor(name, shape, type, Role::kActivation);
  builder.append(
      {OpKind::kTargetPart, name, {record}, {part}, TargetPartAttributes{.first = first}});
  return part;
}

const OpSchema kTargetPartSchema = {nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep::graph
