#include "runtime/config/model_traits.h"

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"

namespace lockstep::config {
namespace {

TargetKind target_of(TextTask task) {
  switch (task) {
    case TextTask::kNextToken:
    case TextTask::kMaskedTokens: return TargetKind::kTokens;
    case TextTask::kSequenceClass: return TargetKind::kClass;
    case TextTask::kSequenceValues: return TargetKind::kValues;
    case TextTask::kTokenClasses: return TargetKind::kTokenClasses;
    case TextTask::kEmbeddings: return TargetKind::kSimilarity;
    case TextTask::kAnswers:
    case TextTask::kRewards: return TargetKind::kPreference;
    case TextTask::kHiddenStates: return TargetKind::kNone;
  }
  LOCKSTEP_CHECK(false);
}

}  // namespace

const char* description_of(TargetKind kind) {
  switch (kind) {
    case TargetKind::kNone: return "no targets";
    case TargetKind::kClass: return "class labels";
    case TargetKind::kYesNo: return "numbers in [0, 1]";
    case TargetKind::kValues: return "values";
    case TargetKind::kDistribution: return "a probability for each class";
    case TargetKind::kPixelClasses: return "a class for each pixel or position";
    case TargetKind::kTokens: return "tokens";
    case TargetKind::kTokenClasses: return "a class for each token";
    case TargetKind::kTranscript: return "transcripts";
    case TargetKind::kSimilarity: return "pairs of texts";
    case TargetKind::kPreference: return "pairs of answers";
    case TargetKind::kNamed: return "targets with names";
  }
  LOCKSTEP_CHECK(false);
}

TargetKind ModelTraits::target_kind() const {
  if (!targets.empty()) return TargetKind::kNamed;
  if (computes_loss && input == ModelInput::kTokens) return target_of(text_task);
  return scored_kind();
}

TargetKind ModelTraits::scored_kind() const {
  if (diffusion) return TargetKind::kClass;
  const bool tokens = input == ModelInput::kTokens;
  switch (loss) {
    case Loss::kSoftmaxCrossEntropy:
      if (pixel_classes) return TargetKind::kPixelClasses;
      return tokens ? target_of(text_task) : TargetKind::kClass;
    case Loss::kBinaryCrossEntropy: return TargetKind::kYesNo;
    case Loss::kMeanSquaredError:
    case Loss::kMeanAbsoluteError:
    case Loss::kHuber: return TargetKind::kValues;
    case Loss::kSoftCrossEntropy: return TargetKind::kDistribution;
    case Loss::kCtc: return TargetKind::kTranscript;
    case Loss::kContrastive: return TargetKind::kSimilarity;
    case Loss::kOutput: return TargetKind::kNamed;
  }
  LOCKSTEP_CHECK(false);
}

bool ModelTraits::has_accuracy() const {
  switch (scored_kind()) {
    case TargetKind::kClass: return !diffusion;
    case TargetKind::kNone:
    case TargetKind::kYesNo:
    case TargetKind::kDistribution:
    case TargetKind::kPixelClasses:
    case TargetKind::kTokens:
    case TargetKind::kTokenClasses:
    case TargetKind::kPreference: return true;
    case TargetKind::kValues:
    case TargetKind::kTranscript:
    case TargetKind::kSimilarity:
    case TargetKind::kNamed: return false;
  }
  LOCKSTEP_CHECK(false);
}

int64_t TargetPart::elements() const {
  int64_t count = 1;
  for (const int64_t extent : extents) count *= extent;
  return count;
}

int64_t first_element(const std::vector<TargetPart>& parts, size_t index) {
  int64_t first = 0;
  for (size_t i = 0; i < index; ++i) first += parts[i].elements();
  return first;
}

std::string ModelTraits::describe_count(const char* field_name,
                                        int64_t count,
                                        const char* what) const {
  return file.empty() ? fmt::format("{} is {}", field(field_name), count)
                      : fmt::format("{} ({}) has {} {}{}",
                                    in_quotes(file),
                                    field("file"),
                                    count,
                                    what,
                                    plural(count));
}

void ModelTraits::refuse(const char* field_name,
                         int64_t count,
                         const char* what,
                         const std::string& open,
                         const std::string& allowed) const {
  if (file.empty()) refuse_value(field(field_name), count, open + allowed);
  throw ConfigError("{}; allowed: {}", describe_count(field_name, count, what), allowed);
}

}  // namespace lockstep::config
