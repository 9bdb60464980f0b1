#include "runtime/graph/ops/softmax_cross_entropy.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/padded_head.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

void ops::softmax_cross_entropy(GraphBuilder& builder,
                                TensorId logits,
                                TensorId targets,
                                float label_smoothing) {
  LOCKSTEP_CHECK(builder.shape(logits).rows() == builder.shape(targets).elements());
  LOCKSTEP_CHECK(builder[targets].dtype == DType::kI32);
  // With several losses only the first one's logits are padded, because the op that weights the
  // others takes rows without padding.
  if (builder.losses().empty()) ops::pad_logits(builder, logits);
  const std::vector<float>& weights = builder.options().class_weights;
  LOCKSTEP_CHECK(weights.empty() ||
                 static_cast<int64_t>(weights.size()) == builder.shape(logits).columns());
  builder.append_loss(
      OpKind::kSoftmaxCrossEntropy,
      logits,
      targets,
      SoftmaxCrossEntropyAttributes{.label_smoothing = label_smoothing, .weights = weights});
}

const OpSchema kSoftmaxCrossEntropySchema = loss_schema(elementwise_flops<8>);

}  // namespace lockstep::graph
