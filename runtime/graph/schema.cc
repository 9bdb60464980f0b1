#include "runtime/graph/schema.h"

#include <algorithm>
#include <array>

#include "runtime/base/error.h"

namespace lockstep::graph {

OpSchema loss_schema(int64_t (*flops)(const Graph& graph, const Op& op)) {
  OpSchema schema = {nullptr, flops, {{LossOut::kGradient, LossIn::kPrediction}}};
  schema.is_loss = true;
  return schema;
}

const OpSchema& schema_of(OpKind kind) {
  static const std::array<const OpSchema*, static_cast<size_t>(OpKind::kCount)> table = {
#define KIND(Kind, name) &k##Kind##Schema,
#include "runtime/graph/ops.def"
  };
  LOCKSTEP_CHECK(kind < OpKind::kCount);
  return *table[static_cast<size_t>(kind)];
}

int64_t bytes_moved(const Graph& graph, const Op& op) {
  int64_t bytes = 0;
  const auto add = [&](TensorId id) {
    if (id != kNoTensor) bytes += static_cast<int64_t>(graph[id].bytes());
  };
  std::ranges::for_each(op.inputs, add);
  std::ranges::for_each(op.outputs, add);
  return bytes;
}

}  // namespace lockstep::graph
