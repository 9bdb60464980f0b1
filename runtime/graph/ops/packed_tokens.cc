#include "runtime/graph/ops/packed_tokens.h"

#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

PackedTokensIds ops::packed_tokens(GraphBuilder& builder, TensorId packed, int32_t first_position) {
  const Shape shape = builder.shape(packed);
  LOCKSTEP_CHECK(
      shape.rank() == 3 && (shape[1] == 3 || shape[1] == 4) && builder[packed].dtype == DType::kI32,
      "packed tokens {} ",
      to_string(shape));
  const auto part = [&](const char* name) {
    return builder.tensor(name, {shape[0], shape[2]}, DType::kI32, Role::kActivation);
  };
  PackedTokensIds ids = {part("tokens"), part("documents"), part("positions")};
  std::vector<TensorId> outputs = {ids.tokens, ids.documents, ids.positions};
  if (shape[1] == 4) outputs.push_back(ids.segments = part("segments"));
  builder.append({OpKind::kPackedTokens,
                  "packed_tokens",
                  {packed},
                  std::move(outputs),
                  PackedTokensAttributes{first_position}});
  return ids;
}

const OpSchema kPackedTokensSchema = {nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep::graph
