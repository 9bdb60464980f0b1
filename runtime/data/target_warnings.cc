#include "runtime/data/target_warnings.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/data/class_warnings.h"
#include "runtime/data/images/masks.h"

namespace lockstep::data {
namespace {

constexpr int64_t kMaxValuesRead = 100'000;  // samples
constexpr int64_t kMaxTextsRead = 100;       // samples

std::string where_of(const std::string& labels_from, const DataConfig& config) {
  return labels_from.empty() ? "data." + config::name_of(config.source) : labels_from;
}

// How a model that predicts classes predicts values instead. Images have no values.
std::string for_values(const DataConfig& config, const config::ModelTraits& model) {
  if (std::holds_alternative<IdxConfig>(config.source)) return "";
  if (model.input == config::ModelInput::kFeatures)
    return model.field("loss") + ": MEAN_SQUARED_ERROR";
  if (model.input == config::ModelInput::kTokens &&
      model.target_kind() == config::TargetKind::kClass)
    return model.field("task") + ": SEQUENCE_VALUES";
  return "";
}

// The columns of values that are the same in all training samples.
std::vector<std::string> value_warnings(const Dataset& train, const std::string& where) {
  const auto columns = static_cast<size_t>(train.target().shape.elements());
  const int64_t read = std::min(train.samples(), kMaxValuesRead);
  std::vector<std::byte> input(train.input().bytes());
  std::vector<float> first(columns), values(columns);
  std::vector<bool> varies(columns);
  size_t same = columns;
  for (int64_t i = 0; i < read && same > 0; ++i) {
    std::vector<float>& target = i == 0 ? first : values;
    train.read({.index = i}, input.data(), reinterpret_cast<std::byte*>(target.data()));
    for (size_t c = 0; i > 0 && c < columns; ++c) {
      if (varies[c] || values[c] == first[c]) continue;
      varies[c] = true;
      --same;
    }
  }
  if (same == 0 || read < 2) return {};
  const auto column = static_cast<size_t>(std::ranges::find(varies, false) - varies.begin());
  return {fmt::format(
      "{}: {} the same value in {} {} training samples{}: there is nothing to learn",
      where,
      columns == 1
          ? std::string("the target has")
          : fmt::format("{} of {} targets (the first is column {}) have", same, columns, column),
      read < train.samples() ? "the first" : "all",
      read,
      columns == 1 ? fmt::format(" ({})", first[0]) : "")};
}

// Whether the target tokens of all samples that are read are the same one, as of a file of zeros.
std::vector<std::string> token_warnings(const Dataset& train, const std::string& where) {
  const int64_t read = std::min(train.samples(), kMaxTextsRead);
  std::vector<std::byte> input(train.input().bytes());
  std::vector<int32_t> targets(static_cast<size_t>(train.target().shape.elements()));
  int32_t only = -1;
  for (int64_t i = 0; i < read; ++i) {
    train.read({.index = i}, input.data(), reinterpret_cast<std::byte*>(targets.data()));
    for (const int32_t target : targets) {
      if (target < 0 || target == only) continue;  // -1: no target
      if (only >= 0) return {};
      only = target;
    }
  }
  if (only < 0) return {};
  return {
      fmt::format("{}: every token to predict in {} {} training samples is {}: there is nothing "
                  "to learn",
                  where,
                  read < train.samples() ? "the first" : "all",
                  read,
                  only)};
}

// The labels of a set of images, or of samples.
LabelCounts counts_of(const ImageStore& store, const DataConfig& config) {
  if (store.has_masks()) return count_pixels(store, config.bad_records != BadRecords::kFail);
  LabelCounts counts;
  for (int64_t i = 0; i < store.count(); ++i) counts.add(store.label(i));
  return counts;
}
LabelCounts counts_of(const Dataset& dataset, const DataConfig& /*config*/) {
  return dataset.label_counts();
}

// `opened`: samples or stores of images. `classes`: that the data define.
template <typename Opened>
ClassLabels labels_of(const Opened& opened,
                      const DataConfig& config,
                      const std::string& where,
                      const config::ModelTraits& model,
                      int64_t classes,
                      const std::vector<std::string>& names) {
  ClassLabels labels{.where = where, .names = names};
  if (opened.train != nullptr) labels.train = counts_of(*opened.train, config);
  if (opened.eval != nullptr && opened.train != nullptr)
    labels.eval = counts_of(*opened.eval, config);
  labels.classes = std::max({labels.train.largest() + 1,
                             labels.eval.largest() + 1,
                             static_cast<int64_t>(names.size()),
                             classes});
  labels.one_class_is_enough = model.diffusion.has_value();
  return labels;
}

// Those of samples that have class labels.
ClassLabels labels_of_samples(const DataConfig& config,
                              const config::ModelTraits& model,
                              const OpenedData& data) {
  const DataSummary& summary = data.summary;
  // A model may have more outputs than the data have classes, so its own number is not counted.
  ClassLabels labels = labels_of(data,
                                 config,
                                 where_of(summary.labels_from, config),
                                 model,
                                 model.outputs > 0 ? 0 : summary.classes,
                                 summary.class_names);
  if (model.target_kind() == config::TargetKind::kTokenClasses) labels.unit = "word";
  if (model.target_kind() == config::TargetKind::kPixelClasses) labels.unit = "position";
  labels.for_values = for_values(config, model);
  labels.words_reported = std::holds_alternative<LabelledTextConfig>(config.source);
  return labels;
}

void append(std::vector<std::string> more, std::vector<std::string>* warnings) {
  std::move(more.begin(), more.end(), std::back_inserter(*warnings));
}

}  // namespace

void add_target_warnings(const DataConfig& config,
                         const config::ModelTraits& model,
                         OpenedSource* opened) {
  if (std::holds_alternative<SyntheticConfig>(config.source)) return;
  if (!model.targets.empty()) return;  // records of several targets
  if (auto* const stores = std::get_if<ImageStores>(opened)) {
    ClassLabels labels = labels_of(*stores,
                                   config,
                                   where_of(stores->labels_from, config),
                                   model,
                                   stores->classes,
                                   stores->class_names);
    require_numbering_from_0(model, stores->classes, labels.train);
    if (model.target_kind() == config::TargetKind::kPixelClasses) labels.unit = "pixel";
    labels.fixed_numbers = std::holds_alternative<CifarConfig>(config.source);
    append(class_warnings(labels), &stores->warnings);
    return;
  }
  auto& data = std::get<OpenedData>(*opened);
  DataSummary& summary = data.summary;
  const std::string where = where_of(summary.labels_from, config);
  switch (model.target_kind()) {
    case config::TargetKind::kYesNo:
    case config::TargetKind::kValues:
    case config::TargetKind::kDistribution:
      if (data.train != nullptr) append(value_warnings(*data.train, where), &summary.warnings);
      break;
    case config::TargetKind::kTokens:
      if (data.train != nullptr) append(token_warnings(*data.train, where), &summary.warnings);
      break;
    case config::TargetKind::kClass:
    case config::TargetKind::kPixelClasses:
    case config::TargetKind::kTokenClasses:
      append(class_warnings(labels_of_samples(config, model, data)), &summary.warnings);
      break;
    // Nothing is known of these that people never mean.
    case config::TargetKind::kNone:
    case config::TargetKind::kTranscript:
    case config::TargetKind::kSimilarity:
    case config::TargetKind::kPreference:
    case config::TargetKind::kNamed: break;
  }
}

}  // namespace lockstep::data
