#include "runtime/data/format.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/class_warnings.h"

namespace lockstep::data {
namespace {

template <size_t... kIndices>
std::vector<DataSource> defaults(std::index_sequence<kIndices...>) {
  return {DataSource(std::in_place_index<kIndices>)...};
}

// A data section of each format, with default fields.
std::vector<DataConfig> all_formats() {
  std::vector<DataConfig> formats;
  for (DataSource& source : defaults(std::make_index_sequence<std::variant_size_v<DataSource>>()))
    formats.emplace_back().source = std::move(source);
  return formats;
}

// Whether a format with default fields fits the model.
bool takes(const config::ModelTraits& model, const DataFormat& format) {
  if (!format.supports(model.input) || !format.provides(model.target_kind(), model.input))
    return false;
  try {
    format.check_for_model(model);
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<const DataFormat> format_of(const DataConfig& data) {
  return std::visit([&](const auto& config) { return make_format(data, config); }, data.source);
}

std::string formats_for(const config::ModelTraits& model) {
  std::vector<std::string> sections;
  for (const DataConfig& data : all_formats())
    if (takes(model, *format_of(data))) sections.push_back("data." + config::name_of(data.source));
  return joined_with("or", sections);
}

std::optional<DataSource> image_source_at(const std::string& path) {
  for (const DataConfig& data : all_formats())
    if (auto source = format_of(data)->source_at(path)) return source;
  return std::nullopt;
}

void require_numbering_from_0(const config::ModelTraits& model,
                              int64_t classes,
                              const LabelCounts& labels) {
  if (model.outputs == 0 || classes <= model.outputs || labels.empty()) return;
  const std::string note = numbering_note(labels);
  if (note.empty()) return;
  throw DataError("the data have {} classes; {}{}", classes, model.describe_outputs(), note);
}

void use_classes_of_model(const config::ModelTraits& model,
                          const Dataset* train,
                          DataSummary* summary) {
  if (model.outputs == 0) return;
  if (train != nullptr && summary->classes > model.outputs)
    require_numbering_from_0(model, summary->classes, train->label_counts());
  if (summary->classes > model.outputs)
    throw DataError("the data have {} classes; {}; allowed: an output for each class",
                    summary->classes,
                    model.describe_outputs());
  summary->classes = model.outputs;
}

}  // namespace lockstep::data
