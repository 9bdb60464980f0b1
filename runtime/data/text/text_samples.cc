#include "runtime/data/text/text_samples.h"

namespace lockstep {

SampleSpec text_input(const ModelTraits& model, bool packed) {
  if (takes_segments(model)) return {DType::kI32, Shape{kTextRows, model.context}};
  if (packed) return {DType::kI32, Shape{kSegmentRow, model.context}};
  return {DType::kI32, Shape{model.context}};
}

SampleSpec text_target(const ModelTraits& model, int64_t outputs) {
  switch (model.text_task) {
    case TextTask::kNextToken:
    case TextTask::kMaskedTokens:
    case TextTask::kTokenClasses: return {DType::kI32, Shape{model.context}};
    case TextTask::kSequenceValues: return {DType::kF32, Shape{outputs}};
    case TextTask::kSequenceClass:
    case TextTask::kHiddenStates: break;
  }
  return {DType::kI32, Shape{}};
}

}  // namespace lockstep
