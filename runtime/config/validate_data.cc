#include "runtime/config/validate_data.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"

namespace lockstep {
namespace {

constexpr int64_t kByteValues = 256;

// `eval_fraction` splits the training data; next to separate evaluation data it would do nothing.
void validate_eval_split(const std::string& section, const std::string& eval, float fraction) {
  if (eval.empty() || fraction == 0) return;
  refuse_value(section + ".eval_fraction",
               fraction,
               fmt::format("0 when {}.eval is given, which is {}", section, in_quotes(eval)));
}

// Of other sources there is nothing to check but single fields.
template <typename Source>
void validate_source(const Source&) {}

void validate_source(const IdxConfig& idx) {
  if (idx.eval_images.empty() == idx.eval_labels.empty()) return;
  if (idx.eval_images.empty()) {
    throw ConfigError(
        "data.idx.eval_images: missing, but eval_labels is {}; allowed: both or neither",
        in_quotes(idx.eval_labels));
  }
  throw ConfigError(
      "data.idx.eval_labels: missing, but eval_images is {}; allowed: both or neither",
      in_quotes(idx.eval_images));
}

void validate_column(const std::string& field, const std::string& column, bool header) {
  if (column.empty()) refuse_value(field, in_quotes(column), "the name or number of a column");
  if (header) return;
  int64_t number = -1;
  const char* end = column.data() + column.size();
  const auto [stop, error] = std::from_chars(column.data(), end, number);
  if (error != std::errc{} || stop != end || number < 0) {
    refuse_value(field,
                 in_quotes(column),
                 "the number of a column, from 0, because data.table.header is false");
  }
}

// Checks the columns of one list, and that none of them stands in `other`, which is what the
// message calls `other_field`.
void validate_columns(const std::string& field,
                      const std::vector<std::string>& columns,
                      std::string_view other_field,
                      const std::vector<std::string>& other,
                      bool header) {
  for (const std::string& column : columns) {
    validate_column(field, column, header);
    if (std::find(other.begin(), other.end(), column) != other.end()) {
      refuse_value(
          field, in_quotes(column), fmt::format("columns that are not in {}", other_field));
    }
  }
}

void validate_source(const TableConfig& table) {
  const std::string& delimiter = table.delimiter;
  if (delimiter.size() != 1 || delimiter == "\n" || delimiter == "\r" || delimiter == "\"") {
    refuse_value("data.table.delimiter",
                 in_quotes(delimiter),
                 "one character, not a quotation mark or a line break");
  }
  validate_column("data.table.target", table.target, table.header);
  validate_columns("data.table.categorical",
                   table.categorical,
                   "data.table.numeric",
                   table.numeric,
                   table.header);
  validate_columns(
      "data.table.numeric", table.numeric, "data.table.ignore", table.ignore, table.header);
  validate_columns(
      "data.table.ignore", table.ignore, "data.table.categorical", table.categorical, table.header);
  validate_columns(
      "data.table.ignore", table.ignore, "data.table.target", {table.target}, table.header);
  validate_eval_split("data.table", table.eval, table.eval_fraction);
}

void validate_source(const TextConfig& text) {
  validate_eval_split("data.text", text.eval, text.eval_fraction);
}

void validate_source(const CifarConfig& cifar) {
  if (cifar.classes != 10 && cifar.classes != 100)
    refuse_value("data.cifar.classes", cifar.classes, "10 (CIFAR-10) or 100 (CIFAR-100)");
  if (cifar.coarse && cifar.classes != 100)
    refuse_value("data.cifar.coarse", "true", "false, but with data.cifar.classes 100");
}

std::string list_of(const std::vector<float>& values) {
  std::string text;
  for (const float value : values) text += (text.empty() ? "[" : ", ") + fmt::format("{}", value);
  return text.empty() ? "[]" : text + "]";
}

void validate_range(const char* field, const std::vector<float>& range) {
  if (range.size() == 2 && range[0] <= range[1]) return;
  refuse_value(field, list_of(range), "two numbers, of which the first is not above the second");
}

bool decodes(const DataConfig& data) {
  return std::holds_alternative<ImageFolderConfig>(data.source) ||
         std::holds_alternative<TarShardsConfig>(data.source) ||
         std::holds_alternative<RecordsConfig>(data.source);
}

void validate_image(const DataConfig& data) {
  const ImageConfig& image = data.image;
  if (decodes(data) && image.size == 0)
    throw ConfigError(
        "data.image.size: missing; allowed: 1..8192, the side of the pictures that the model sees");
  if (image.resize != 0 && image.resize < image.size)
    refuse_value("data.image.resize",
                 image.resize,
                 fmt::format("0, or at least data.image.size, which is {}", image.size));
  const bool idx = std::holds_alternative<IdxConfig>(data.source);
  if (idx && !(image.mean.empty() && image.std.empty()))
    refuse_value(image.mean.empty() ? "data.image.std" : "data.image.mean",
                 list_of(image.mean.empty() ? image.std : image.mean),
                 "none with data.idx, which has its own mean and std");
}

void validate_augment(const AugmentConfig& augment) {
  if (const auto& crop = augment.random_resized_crop) {
    validate_range("data.augment.random_resized_crop.scale", crop->scale);
    validate_range("data.augment.random_resized_crop.ratio", crop->ratio);
  }
}

void validate_vocabulary(const DataConfig& data, const ModelTraits& model) {
  const bool bytes = std::holds_alternative<TextConfig>(data.source);
  if (bytes && model.outputs != 0 && model.outputs < kByteValues) {
    refuse_value(model.field(model.outputs_field),
                 model.outputs,
                 "0 (from the data), or at least 256 with data.text, whose tokens are bytes");
  }
}

}  // namespace

void validate_data(const DataConfig& data) {
  std::visit([](const auto& source) { validate_source(source); }, data.source);
  validate_image(data);
  validate_augment(data.augment);
}

void validate_data_for_model(const DataConfig& data, const ModelTraits& model) {
  const bool tokens = std::holds_alternative<TextConfig>(data.source) ||
                      std::holds_alternative<TokensConfig>(data.source);
  const bool either = std::holds_alternative<SyntheticConfig>(data.source);
  const std::string section = "data." + name_of(data.source), with = " with model." + model.section;
  if (model.wants_images()) {
    if (tokens || std::holds_alternative<TableConfig>(data.source)) {
      refuse_value("data",
                   section,
                   "data.cifar, data.image_folder, data.tar_shards, data.records, data.idx or "
                   "data.synthetic with a model of images");
    }
  } else if (model.input == ModelInput::kTokens) {
    if (!tokens && !either)
      refuse_value("data", section, "data.text, data.tokens or data.synthetic" + with);
    validate_vocabulary(data, model);
  } else if (tokens) {
    refuse_value(
        "data", section, "data.idx, data.table, data.synthetic or a source of images" + with);
  }
  if (model.wants_images() || gives_images(data)) return;
  if (!(data.image == ImageConfig{}))
    throw ConfigError("data.image: given; allowed: only where the data are images, not {}",
                      section);
  if (!(data.augment == AugmentConfig{}))
    throw ConfigError("data.augment: given; allowed: only where the data are images, not {}",
                      section);
}

bool gives_images(const DataConfig& data) {
  return decodes(data) || std::holds_alternative<CifarConfig>(data.source);
}

bool has_eval_data(const DataConfig& data) {
  return std::visit(
      [](const auto& source) {
        using Source = std::decay_t<decltype(source)>;
        if constexpr (std::is_same_v<Source, IdxConfig>) {
          return !source.eval_images.empty();
        } else if constexpr (std::is_same_v<Source, SyntheticConfig>) {
          return false;
        } else if constexpr (std::is_same_v<Source, TableConfig> ||
                             std::is_same_v<Source, TextConfig>) {
          return !source.eval.empty() || source.eval_fraction > 0;
        } else {
          return !source.eval.empty();
        }
      },
      data.source);
}

}  // namespace lockstep
