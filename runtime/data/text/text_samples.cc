#include "runtime/data/text/text_samples.h"

namespace lockstep::data {

SampleSpec text_input(const config::ModelTraits& model, bool packed, int64_t texts) {
  if (takes_segments(model)) return {DType::kI32, Shape{texts * kTextRows, model.context}};
  if (packed) return {DType::kI32, Shape{kSegmentRow, model.context}};
  return {DType::kI32, Shape{model.context}};
}

SampleSpec text_target(const config::ModelTraits& model, int64_t outputs) {
  switch (model.text_task) {
    case config::TextTask::kNextToken:
    case config::TextTask::kMaskedTokens:
    case config::TextTask::kTokenClasses: return {DType::kI32, Shape{model.context}};
    case config::TextTask::kSequenceValues: return {DType::kF32, Shape{outputs}};
    case config::TextTask::kEmbeddings: return {DType::kF32, Shape{}};
    case config::TextTask::kAnswers: return {DType::kI32, Shape{2, model.context}};
    case config::TextTask::kRewards:
    case config::TextTask::kSequenceClass:
    case config::TextTask::kHiddenStates: break;
  }
  return {DType::kI32, Shape{}};
}

}  // namespace lockstep::data
