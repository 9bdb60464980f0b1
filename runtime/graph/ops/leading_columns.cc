#include "runtime/graph/ops/leading_columns.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

TensorId ops::leading_columns(GraphBuilder& builder,
                              const std::string& name,
                              TensorId x,
                              int64_t columns) {
  Shape shape = builder.shape(x);
  LOCKSTEP_CHECK(builder[x].dtype == DType::kI32 && shape.rank() >= 1, "{}: x ", name);
  LOCKSTEP_CHECK(
      columns >= 1 && columns <= shape.columns(), "{}: {} of {} ", name, columns, to_string(shape));
  Shape kept;
  for (int k = 0; k + 1 < shape.rank(); ++k) kept.append(shape[k]);
  kept.append(columns);
  const TensorId y = builder.tensor(name, kept, DType::kI32, Role::kActivation);
  builder.append({OpKind::kLeadingColumns, name, {x}, {y}, {}});
  return y;
}

const OpSchema kLeadingColumnsSchema = {nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep
