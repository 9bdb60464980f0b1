// Data sets from delimited text tables (CSV, TSV).
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/table.h"

namespace lockstep::data {
namespace {

void check_column(const std::string& field, const std::string& column, bool header) {
  if (header || parse_as<size_t>(column)) return;
  config::refuse_value(field,
                       in_quotes(column),
                       "the number of a column, from 0, because data.table.header is false");
}

// Checks the mark `field` of numbers: one character (code point) that no number has.
void check_mark(const std::string& field, const std::string& mark) {
  const auto characters = std::ranges::count_if(
      mark, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
  const bool in_numbers = std::ranges::any_of(mark, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::iscntrl(c) != 0 || c == '+' || c == '-' || c == '"';
  });
  if (characters != 1 || in_numbers)
    config::refuse_value(
        field,
        in_quotes(mark),
        "one character, not a letter, a digit, a sign, a quotation mark or a line break");
}

// Checks the columns in the list `field`. None of them may also be in the list `other`, whose field
// is `other_field`.
void require_columns(const std::string& field,
                     const std::vector<std::string>& columns,
                     std::string_view other_field,
                     const std::vector<std::string>& other,
                     bool header) {
  for (const std::string& column : columns) {
    check_column(field, column, header);
    if (std::ranges::find(other, column) != other.end())
      config::refuse_value(field, in_quotes(column), "columns that are not in {}", other_field);
  }
}

TableText text_of(const SourceFile& file) {
  const auto bytes = file.bytes();
  return {{reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.name()};
}

class Table final : public FileFormat<TableConfig> {
 public:
  using FileFormat::FileFormat;

  void check() const override {
    const TableConfig& table = config_;
    const std::string& delimiter = table.delimiter;
    if (delimiter.size() != 1 || delimiter == "\n" || delimiter == "\r" || delimiter == "\"")
      config::refuse_value("data.table.delimiter",
                           in_quotes(delimiter),
                           "one character, not a quotation mark or a line break");
    // A mark may be the delimiter, because cells can be in quotes: "1,234".
    check_mark("data.table.decimal", table.decimal);
    if (!table.thousands.empty()) check_mark("data.table.thousands", table.thousands);
    if (table.thousands == table.decimal)
      config::refuse_value("data.table.thousands",
                           in_quotes(table.thousands),
                           "another character than data.table.decimal");
    const bool header = table.header;
    check_targets(table);
    check_column(table.targets.empty() ? "data.table.target" : "data.table.targets",
                 target_names().front(),
                 header);
    require_columns(
        "data.table.categorical", table.categorical, "data.table.numeric", table.numeric, header);
    require_columns("data.table.numeric", table.numeric, "data.table.ignore", table.ignore, header);
    require_columns(
        "data.table.ignore", table.ignore, "data.table.categorical", table.categorical, header);
    require_columns("data.table.ignore",
                    table.ignore,
                    table.targets.empty() ? "data.table.target" : "data.table.targets",
                    target_names(),
                    header);
  }

  bool supports(config::ModelInput input) const override {
    return input == config::ModelInput::kFeatures;
  }
  bool holds_out() const override { return true; }
  std::vector<std::string> target_names() const override {
    return config_.targets.empty() ? std::vector<std::string>{config_.target} : config_.targets;
  }
  bool has_records() const override { return !config_.targets.empty(); }

  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kClass || kind == config::TargetKind::kYesNo ||
           kind == config::TargetKind::kValues || kind == config::TargetKind::kNamed;
  }

  void check_for_model(const config::ModelTraits& model) const override {
    if (model.targets.empty() && config_.targets.size() > 1)
      throw ConfigError("data.table.targets: has {}, but model.{} takes one target",
                        fmt::join(config_.targets, ", "),
                        model.section);
    if (config_.standardise_target && !model.targets.empty())
      config::refuse_value(
          "data.table.standardise_target", "true", "false with a model that names its targets");
    if (config_.standardise_target && model.target_kind() != config::TargetKind::kValues)
      config::refuse_value("data.table.standardise_target",
                           "true",
                           "false with {} {}; true only with MEAN_SQUARED_ERROR and other losses "
                           "of values",
                           model.field("loss"),
                           lockstep::name_of(model.loss));
  }

  // For the samples see table.h.
  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    return open_table(model, need_train ? TableUse::kTraining : TableUse::kEvaluation);
  }
  OpenedSource open_inputs(const config::ModelTraits& model, uint64_t /*seed*/) const override {
    return open_table(model, TableUse::kInputs);
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    missing.refuse("the number of features", "");
  }

 private:
  static void check_targets(const TableConfig& table) {
    if (table.target.empty() && table.targets.empty())
      throw ConfigError(
          "data.table.target: missing; allowed: the name of a column, or its index from 0");
    if (!table.target.empty() && !table.targets.empty())
      throw ConfigError("data.table.targets: given beside target; allowed: one of them");
    for (size_t i = 0; i < table.targets.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (table.targets[i] == table.targets[j])
          config::refuse_value(
              "data.table.targets", in_quotes(table.targets[i]), "each column once");
  }

  OpenedData open_table(const config::ModelTraits& model, TableUse use) const {
    const auto open_file = [&](const std::string& path, const char* field) {
      SourceFile file(data_.dir, path, field, SourceFile::Gzip::kDecompress);
      refuse_other_than_table(file.bytes(), file.name());
      return file;
    };
    const SourceFile train = open_file(config_.train, "table.train");
    if (config_.eval.empty())
      return make_table(text_of(train), nullptr, data_, config_, model, use);
    const SourceFile eval = open_file(config_.eval, "table.eval");
    const TableText eval_text = text_of(eval);
    return make_table(text_of(train), &eval_text, data_, config_, model, use);
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data, const TableConfig& table) {
  return std::make_unique<Table>(data, table);
}

}  // namespace lockstep::data
