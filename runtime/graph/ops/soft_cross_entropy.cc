#include "runtime/graph/ops/soft_cross_entropy.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

void ops::soft_cross_entropy(GraphBuilder& builder,
                             TensorId logits,
                             TensorId targets,
                             float label_smoothing) {
  LOCKSTEP_CHECK(builder.shape(logits).elements() == builder.shape(targets).elements());
  LOCKSTEP_CHECK(builder.options().class_weights.empty());
  builder.append_loss(OpKind::kSoftCrossEntropy,
                      logits,
                      targets,
                      SoftCrossEntropyAttributes{.label_smoothing = label_smoothing});
}

const OpSchema kSoftCrossEntropySchema = loss_schema(elementwise_flops<10>);

}  // namespace lockstep::graph
