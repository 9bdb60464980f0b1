#include "models/losses.h"

#include "runtime/base/error.h"
#include "runtime/graph/ops/pointwise_losses.h"
#include "runtime/graph/ops/soft_cross_entropy.h"
#include "runtime/graph/ops/softmax_cross_entropy.h"

namespace lockstep::models {

void append_loss(graph::GraphBuilder& builder,
                 const LossOptions& options,
                 TensorId output,
                 TensorId targets) {
  const float smoothing = builder.training() ? options.label_smoothing : 0;
  switch (options.loss) {
    case Loss::kSoftmaxCrossEntropy:
      return ops::softmax_cross_entropy(builder, output, targets, smoothing);
    case Loss::kSoftCrossEntropy:
      return ops::soft_cross_entropy(builder, output, targets, smoothing);
    case Loss::kBinaryCrossEntropy: return ops::binary_cross_entropy(builder, output, targets);
    case Loss::kMeanSquaredError: return ops::mean_squared_error(builder, output, targets);
    case Loss::kMeanAbsoluteError: return ops::mean_absolute_error(builder, output, targets);
    case Loss::kHuber: return ops::huber(builder, output, targets, options.huber_delta);
    case Loss::kCtc:
    case Loss::kContrastive:
    case Loss::kOutput: break;
  }
  LOCKSTEP_CHECK(false, "loss {} ", name_of(options.loss));
}

bool smooths_labels(Loss loss) {
  return loss == Loss::kSoftmaxCrossEntropy || loss == Loss::kSoftCrossEntropy;
}

}  // namespace lockstep::models
