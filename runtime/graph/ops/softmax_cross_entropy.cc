#include "runtime/graph/ops/softmax_cross_entropy.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {
namespace {

// Whether the tensor's rows may be padded: it is computed by an op whose kernels support that, and
// only the loss reads it.
bool may_be_padded(const Graph& graph, TensorId tensor) {
  if (std::ranges::any_of(graph.ops,
                          [&](const Op& op) { return std::ranges::count(op.inputs, tensor) > 0; }))
    return false;
  const auto producer = std::find_if(graph.ops.rbegin(), graph.ops.rend(), [&](const Op& op) {
    return std::ranges::count(op.outputs, tensor) > 0;
  });
  return producer == graph.ops.rend() || producer->kind == OpKind::kLinear ||
         producer->kind == OpKind::kLoraAdd;
}

}  // namespace

void ops::softmax_cross_entropy(GraphBuilder& builder,
                                TensorId logits,
                                TensorId targets,
                                float label_smoothing) {
  LOCKSTEP_CHECK(builder.shape(logits).rows() == builder.shape(targets).elements());
  LOCKSTEP_CHECK(builder[targets].dtype == DType::kI32);
  // Kernels for large vocabularies want rows that begin at aligned addresses. With several losses
  // only the first has them, because the op that weights the others takes rows without padding.
  const GraphOptions& options = builder.options();
  const int64_t unit = options.logits_alignment / static_cast<int64_t>(size_of(options.compute));
  if (unit > 1 && builder.losses().empty() && may_be_padded(builder.graph(), logits)) {
    const int64_t columns = builder.shape(logits).columns();
    builder[logits].padded_columns = (columns + unit - 1) / unit * unit;
  }
  LOCKSTEP_CHECK(options.class_weights.empty() ||
                 static_cast<int64_t>(options.class_weights.size()) ==
                     builder.shape(logits).columns());
  builder.append_loss(OpKind::kSoftmaxCrossEntropy,
                      logits,
                      targets,
                      SoftmaxCrossEntropyAttributes{.label_smoothing = label_smoothing,
                                                    .weights = options.class_weights});
}

const OpSchema kSoftmaxCrossEntropySchema = {
    nullptr, elementwise_flops<8>, {{LossOut::kGradient, LossIn::kPrediction}}};

}  // namespace lockstep::graph
