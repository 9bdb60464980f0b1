#include "runtime/data/named_targets.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/format.h"

namespace lockstep::data {
namespace {

using config::TargetPart;

std::string quoted(std::vector<std::string> names) {
  for (std::string& name : names) name = in_quotes(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// The parts with all names filled in.
std::vector<TargetPart> named(const DataConfig& data,
                              const config::ModelTraits& model,
                              const std::vector<std::string>& names) {
  const std::string section = "data." + config::name_of(data.source);
  std::vector<TargetPart> parts = model.targets;
  std::vector<std::string> open = names;
  for (const TargetPart& part : parts) {
    if (part.name.empty()) continue;
    if (std::ranges::count(names, part.name) == 0)
      throw ConfigError("{}: the model's target {} is not in {}; allowed: {}{}",
                        model.field("file"),
                        in_quotes(part.name),
                        section,
                        quoted(names),
                        names.size() == 1 && names[0] == "labels"
                            ? "; data.npy.targets and data.table.targets have other names"
                            : "");
    std::erase(open, part.name);
  }
  const std::vector<std::string>& choice = open.empty() ? names : open;
  for (TargetPart& part : parts) {
    if (!part.name.empty()) continue;
    if (choice.size() != 1)
      throw ConfigError(
          "{}: the model takes a target without a name, and {} has {}; allowed: one target that "
          "no other part of the model names",
          model.field("file"),
          section,
          quoted(choice));
    part.name = choice[0];
  }
  return parts;
}

Loss loss_of(TargetPart::Type type) {
  switch (type) {
    case TargetPart::Type::kLabels: return Loss::kSoftmaxCrossEntropy;
    case TargetPart::Type::kValues: return Loss::kMeanSquaredError;
    case TargetPart::Type::kShares: break;
  }
  return Loss::kBinaryCrossEntropy;
}

// Wraps samples whose own targets are not used.
class RecordedTargets final : public WrappedDataset {
 public:
  RecordedTargets(std::unique_ptr<Dataset> samples, std::shared_ptr<const TargetRecords> records)
      : WrappedDataset(std::move(samples)), records_(std::move(records)) {
    const std::vector<TargetPart>& parts = records_->parts();
    target_ = {DType::kI32, Shape{config::first_element(parts, parts.size())}};
  }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    int32_t unused = 0;
    dataset_->read(key, input, reinterpret_cast<std::byte*>(&unused));
    records_->read(record_of(key.index), target);
  }
  int64_t resident_bytes() const override {
    return dataset_->resident_bytes() + records_->resident_bytes();
  }
  uint64_t checksum() const override {
    Checksum checksum;
    const uint64_t inputs = dataset_->checksum();
    checksum.update(&inputs, sizeof(inputs));
    std::vector<std::byte> record(target_.bytes());
    const int64_t bytes = samples() * static_cast<int64_t>(record.size());
    const int64_t stride = std::max<int64_t>(1, bytes / kMaxHashedBytes);
    for (int64_t index = 0; index < samples(); index += stride) {
      records_->read(record_of(index), record.data());
      checksum.update(record.data(), record.size());
    }
    return checksum.value();
  }

 private:
  const std::shared_ptr<const TargetRecords> records_;
};

}  // namespace

config::ModelTraits traits_for_data(const DataConfig& data, const config::ModelTraits& model) {
  if (model.targets.empty()) return model;
  config::ModelTraits traits = model;
  const std::unique_ptr<const DataFormat> format = format_of(data);
  traits.targets = named(data, model, format->target_names());
  if (format->has_records()) return traits;
  // There is one name, so all parts are the same target.
  const TargetPart& part = traits.targets.front();
  for (const TargetPart& other : traits.targets)
    if (other.type != part.type)
      throw ConfigError(
          "{}: the model takes the target {} both as class numbers and as values; allowed: two "
          "targets, in data.npy.targets or data.table.targets",
          model.field("file"),
          in_quotes(part.name));
  // Images have labels, which the graph converts.
  traits.loss = model.wants_images() ? Loss::kSoftmaxCrossEntropy : loss_of(part.type);
  traits.outputs = traits.loss == Loss::kSoftmaxCrossEntropy ? part.classes
                   : part.any_extents                        ? 0
                                                             : part.elements();
  traits.targets.clear();
  traits.computes_loss = false;
  return traits;
}

void name_single_target(const DataConfig& data,
                        const config::ModelTraits& model,
                        OpenedData* opened) {
  if (model.targets.empty() || !opened->summary.targets.empty()) return;
  const Dataset* const any = opened->train ? opened->train.get() : opened->eval.get();
  if (any == nullptr) return;
  const std::vector<TargetPart> asked = named(data, model, format_of(data)->target_names());
  TargetPart part = asked.front();
  const SampleSpec& target = any->target();
  part.extents.clear();
  for (int d = 0; d < target.shape.rank(); ++d) part.extents.push_back(target.shape[d]);
  const bool labels = target.dtype == DType::kI32;
  for (const TargetPart& want : asked)
    if (!has_extents(want, part.extents))
      throw DataError("the target {} is {} for each sample; {} takes {}",
                      in_quotes(part.name),
                      extents_in_words(part.extents),
                      in_quotes(model.file),
                      extents_in_words(want.extents));
  part.type = labels ? TargetPart::Type::kLabels : TargetPart::Type::kValues;
  part.classes = opened->summary.classes;
  opened->summary.targets = {part};
}

std::string extents_in_words(const std::vector<int64_t>& extents) {
  if (extents.empty()) return "a number";
  return fmt::format("({})", fmt::join(extents, ", "));
}

bool has_extents(const config::TargetPart& part, const std::vector<int64_t>& extents) {
  const auto without_ones = [](std::vector<int64_t> all) {
    std::erase(all, 1);
    return all;
  };
  return part.any_extents || without_ones(part.extents) == without_ones(extents);
}

void use_records(const std::shared_ptr<const TargetRecords>& train,
                 const std::shared_ptr<const TargetRecords>& eval,
                 OpenedData* opened) {
  const std::shared_ptr<const TargetRecords>& of_eval = eval != nullptr ? eval : train;
  if (of_eval == nullptr) return;
  if (opened->train != nullptr)
    opened->train = std::make_unique<RecordedTargets>(std::move(opened->train), train);
  if (opened->eval != nullptr)
    opened->eval = std::make_unique<RecordedTargets>(std::move(opened->eval), of_eval);
  DataSummary& summary = opened->summary;
  summary.targets = of_eval->parts();
  summary.classes = summary.target_columns = 0;
  std::vector<std::string> names;
  for (const TargetPart& part : summary.targets)  // several inputs may have the same target
    if (std::ranges::count(names, part.name) == 0) names.push_back(part.name);
  summary.details = fmt::format(" of {} numbers, with {} {}",
                                summary.features,
                                names.size() == 1 ? "target" : "targets",
                                fmt::join(names, ", "));
}

}  // namespace lockstep::data
