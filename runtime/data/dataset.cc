#include "runtime/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/data/check_data.h"
#include "runtime/data/format.h"
#include "runtime/data/images/image_dataset.h"
#include "runtime/data/named_targets.h"
#include "runtime/data/ordered.h"
#include "runtime/data/subset.h"
#include "runtime/data/target_warnings.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

// Opens the training data, and holds out a part of them for evaluation.
OpenedSource open_parts(const DataConfig& config,
                        const DataFormat& format,
                        const config::ModelTraits& model,
                        uint64_t seed,
                        bool need_train) {
  OpenedSource opened = format.open(model, seed, /*need_train=*/true);
  hold_out(held_out_by(config), "data." + config::name_of(config.source), need_train, &opened);
  return opened;
}

// Whether the evaluation set is a part of the training set that the format does not split itself.
bool takes_parts(const DataConfig& config, const DataFormat& format) {
  return held_out_by(config) && !format.has_eval() && !format.holds_out();
}

// Throws ConfigError if samples have only a row of tokens, but the model needs segments too.
void check_samples(const DataConfig& config,
                   const config::ModelTraits& model,
                   const Dataset* dataset) {
  if (dataset == nullptr || model.input != config::ModelInput::kTokens || !takes_segments(model))
    return;
  const SampleSpec& input = dataset->input();
  if (input.shape.rank() == 2 && input.shape[0] % kTextRows == 0) return;
  throw ConfigError(
      "data.{}: its samples fit only causal language models; model.{} needs another data source",
      config::name_of(config.source),
      model.section);
}

// Throws DataError with the first warning, if warnings are errors in this config.
void apply_strict(const DataConfig& config, const DataSummary& summary) {
  const std::string field = strict_field(config);
  if (field.empty() || summary.warnings.empty()) return;
  const size_t more = summary.warnings.size() - 1;
  throw DataError("{}{} (an error because of {})",
                  summary.warnings.front(),
                  more > 0 ? fmt::format("; and {} more warning{}", more, more > 1 ? "s" : "") : "",
                  field);
}

OpenedData samples_of(OpenedSource source,
                      const DataConfig& config,
                      const config::ModelTraits& model,
                      uint64_t seed) {
  OpenedData opened;
  if (auto* samples = std::get_if<OpenedData>(&source)) {
    check_samples(config, model, samples->train.get());
    check_samples(config, model, samples->eval.get());
    opened = std::move(*samples);
  } else {
    opened = open_stores(config, std::get<ImageStores>(source), seed);
    if (!model.wants_images()) opened = flatten_images(std::move(opened), model);
  }
  apply_strict(config, opened.summary);
  return opened;
}

}  // namespace

OpenedSource open_source(const DataConfig& config,
                         const config::ModelTraits& model,
                         uint64_t seed,
                         bool need_train) {
  require_format_for_model(config, model);
  const std::unique_ptr<const DataFormat> format = format_of(config);
  OpenedSource opened = takes_parts(config, *format)
                            ? open_parts(config, *format, model, seed, need_train)
                            : format->open(model, seed, need_train);
  add_target_warnings(config, model, &opened);
  return opened;
}

void describe(OpenedData* opened) {
  DataSummary& summary = opened->summary;
  summary.train_samples = opened->train != nullptr ? opened->train->samples() : 0;
  summary.eval_samples = opened->eval != nullptr ? opened->eval->samples() : 0;
  summary.description = fmt::format("{}: {} training and {} evaluation {}{}",
                                    summary.kind,
                                    summary.train_samples,
                                    summary.eval_samples,
                                    summary.unit,
                                    summary.details);
  if (summary.bad_records > 0)
    summary.description += fmt::format(", {} bad records", summary.bad_records);
  if (!summary.held_out.empty()) summary.description += "; " + summary.held_out;
}

int32_t Dataset::label(int64_t index) const {
  LOCKSTEP_CHECK(target().dtype == DType::kI32 && target().shape.rank() == 0);
  std::vector<std::byte> sample(input().bytes());
  int32_t label = 0;
  read({.index = index}, sample.data(), reinterpret_cast<std::byte*>(&label));
  return label;
}

LabelCounts Dataset::label_counts() const {
  LabelCounts counts;
  if (target().shape.rank() == 0) {
    for (int64_t i = 0; i < samples(); ++i) counts.add(label(i));
    return counts;
  }
  std::vector<std::byte> input(this->input().bytes());
  std::vector<int32_t> labels(static_cast<size_t>(target().shape.elements()));
  for (int64_t i = 0; i < samples(); ++i) {
    read({.index = i}, input.data(), reinterpret_cast<std::byte*>(labels.data()));
    for (const int32_t label : labels)
      if (label >= 0) counts.add(label);  // -1: no target
  }
  return counts;
}

std::string Dataset::name_of(int64_t index) const {
  const std::vector<std::string> names = files();
  if (names.empty()) return fmt::format("sample {}", index);
  return fmt::format("sample {} ({})", index, names[static_cast<size_t>(index)]);
}

uint64_t Dataset::checksum() const {
  const size_t input_bytes = input().bytes(), sample_bytes = input_bytes + target().bytes();
  const auto bytes = samples() * static_cast<int64_t>(sample_bytes);
  const int64_t stride = std::max<int64_t>(1, bytes / kMaxHashedBytes);
  std::vector<std::byte> sample(sample_bytes);
  Checksum checksum;
  const int64_t count = samples();
  checksum.update(&count, sizeof(count));
  for (int64_t index = 0; index < count; index += stride) {
    read({.index = index}, sample.data(), sample.data() + input_bytes);
    checksum.update(sample.data(), sample.size());
  }
  return checksum.value();
}

std::string strict_field(const DataConfig& config) {
  const auto* table = std::get_if<TableConfig>(&config.source);
  if (config.strict) return "data.strict";
  return table != nullptr && table->strict ? "data.table.strict" : "";
}

OpenedData open_data(const DataConfig& config,
                     const config::ModelTraits& of_model,
                     uint64_t seed,
                     bool need_train) {
  const config::ModelTraits model = traits_for_data(config, of_model);
  OpenedData opened = samples_of(open_source(config, model, seed, need_train), config, model, seed);
  order_training(config, &opened);
  name_single_target(config, of_model, &opened);
  return opened;
}

OpenedData open_inputs(const DataConfig& config,
                       const config::ModelTraits& of_model,
                       uint64_t seed) {
  const config::ModelTraits model = traits_for_data(config, of_model);
  require_format_for_model(config, model);
  const std::unique_ptr<const DataFormat> format = format_of(config);
  OpenedSource opened = takes_parts(config, *format)
                            ? open_parts(config, *format, model, seed, /*need_train=*/false)
                            : format->open_inputs(model, seed);
  OpenedData samples = samples_of(std::move(opened), config, model, seed);
  name_single_target(config, of_model, &samples);
  return samples;
}

OpenedData open_unflattened_data(const DataConfig& config,
                                 const config::ModelTraits& model,
                                 uint64_t seed,
                                 bool need_train) {
  OpenedSource opened = open_source(config, model, seed, need_train);
  if (auto* samples = std::get_if<OpenedData>(&opened)) return std::move(*samples);
  return open_stores(config, std::get<ImageStores>(opened), seed);
}

}  // namespace lockstep::data
