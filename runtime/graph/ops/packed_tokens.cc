#include "runtime/graph/ops/packed_tokens.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep {

PackedTokensIds ops::packed_tokens(GraphBuilder& builder, TensorId packed) {
  const Shape shape = builder.shape(packed);
  LOCKSTEP_CHECK(shape.rank() == 3 && shape[1] == 3 && builder[packed].dtype == DType::kI32,
                 "packed tokens ");
  const auto part = [&](const char* name) {
    return builder.tensor(name, {shape[0], shape[2]}, DType::kI32, Role::kActivation);
  };
  const PackedTokensIds ids = {part("tokens"), part("documents"), part("positions")};
  builder.append({OpKind::kPackedTokens,
                  "packed_tokens",
                  {packed},
                  {ids.tokens, ids.documents, ids.positions},
                  {}});
  return ids;
}

const OpSchema kPackedTokensSchema = {nullptr, elementwise_flops<0>, {}};

}  // namespace lockstep
