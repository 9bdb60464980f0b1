#include "runtime/graph/ops/preference_loss.h"

#include "runtime/base/error.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/rules.h"
#include "runtime/graph/schema.h"

namespace lockstep::graph {

void ops::preference_loss(GraphBuilder& builder,
                          TensorId scores,
                          TensorId reference,
                          const PreferenceLossAttributes& attributes) {
  LOCKSTEP_CHECK(builder.shape(scores).rank() == 2 && builder.shape(scores).columns() == 2);
  LOCKSTEP_CHECK(reference == kNoTensor || (builder.shape(reference) == builder.shape(scores) &&
                                            builder[reference].dtype == DType::kF32));
  builder.append_loss(OpKind::kPreferenceLoss, scores, reference, attributes);
}

const OpSchema kPreferenceLossSchema = loss_schema(elementwise_flops<12>);

}  // namespace lockstep::graph
