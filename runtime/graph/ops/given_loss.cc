#include "runtime/graph/ops/given_loss.h"

#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

void ops::given_loss(GraphBuilder& builder, TensorId losses) {
  builder.append_loss(OpKind::kGivenLoss, losses, kNoTensor, {});
}

const OpSchema kGivenLossSchema = loss_schema(elementwise_flops<1>);

}  // namespace lockstep::graph
