#include "runtime/graph/ops/ctc_loss.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

void ops::ctc_loss(GraphBuilder& builder, TensorId logits, TensorId targets, int32_t blank) {
  const Shape &x = builder.shape(logits), &records = builder.shape(targets);
  LOCKSTEP_CHECK(x.rank() == 3 && records.rank() == 2 && records[0] == x[0]);
  LOCKSTEP_CHECK(records[1] >= kCtcFirstSymbol && builder[targets].dtype == DType::kI32);
  LOCKSTEP_CHECK(blank >= 0 && blank < x[2]);
  builder.append_loss(OpKind::kCtcLoss, logits, targets, CtcLossAttributes{blank});
  builder.set_loss_rows_per_sample(1);
}

namespace {

// The softmax of each class; three exponentials and a logarithm of each state, in two passes.
int64_t ctc_loss_flops(const Graph& graph, const Op& op) {
  const Shape& x = graph.shape(op.inputs[LossIn::kPrediction]);
  const int64_t states = 2 * (graph.shape(op.inputs[LossIn::kTargets])[1] - kCtcFirstSymbol) + 1;
  return x[0] * x[1] * (8 * x[2] + 48 * states);
}

}  // namespace

const OpSchema kCtcLossSchema = loss_schema(ctc_loss_flops);

}  // namespace lockstep::graph
