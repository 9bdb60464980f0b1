#include "runtime/data/tables/table.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/data/held_out.h"
#include "runtime/data/named_targets.h"
#include "runtime/data/tables/table_encoder.h"
#include "runtime/data/tables/table_target.h"
#include "runtime/data/tables/table_warnings.h"

namespace lockstep::data {
namespace {

// The mean and standard deviation by which targets are standardised. By default they are unchanged.
struct Standard {
  double mean = 0, std = 1;
};

// Mean and std of the targets of `rows`. std is the population's, or 1 if all are equal.
Standard standard_of(const std::vector<double>& targets, const std::vector<int64_t>& rows) {
  const auto count = static_cast<double>(rows.size());
  Standard standard;
  for (const int64_t row : rows) standard.mean += targets[row] / count;
  double squares = 0;
  bool differ = false;
  for (const int64_t row : rows) {
    const double distance = targets[row] - standard.mean;
    squares += distance * distance / count;
    differ |= targets[row] != targets[rows[0]];
  }
  if (!differ) return {.mean = targets[rows[0]]};
  if (squares > 0) standard.std = std::sqrt(squares);
  return standard;
}

// The decoded targets of all rows of a table; NaN: missing or invalid.
struct TargetColumn {
  std::vector<double> values;
  bool labels;
};
using Targets = std::vector<TargetColumn>;

class TableDataset final : public Dataset {
 public:
  // `file`: the name of the table's file.
  TableDataset(std::shared_ptr<const TableEncoder> encoder,
               std::string file,
               const TableColumns& table,
               const Targets& targets,
               const std::vector<int64_t>& rows,
               bool record,
               const Standard& standard)
      : encoder_(std::move(encoder)),
        file_(std::move(file)),
        cells_(encoder_->encode(table, rows)) {
    lines_.reserve(rows.size());
    records_.reserve(rows.size());
    std::vector<int64_t> record_of_row(static_cast<size_t>(table.rows));
    for (size_t record = 0; record < table.records.size(); ++record)
      if (const int64_t row = table.records[record].row; row >= 0)
        record_of_row[static_cast<size_t>(row)] = static_cast<int64_t>(record);
    input_ = {DType::kF32, Shape{encoder_->features()}};
    columns_ = targets.size();
    if (record)
      target_ = {DType::kI32, Shape{static_cast<int64_t>(columns_)}};
    else
      target_ =
          targets[0].labels ? SampleSpec{DType::kI32, Shape{}} : SampleSpec{DType::kF32, Shape{1}};
    targets_.reserve(rows.size() * columns_);
    for (const int64_t row : rows) {
      const int64_t record = record_of_row[static_cast<size_t>(row)];
      records_.push_back(record);
      lines_.push_back(table.records[static_cast<size_t>(record)].line);
      for (const TargetColumn& target : targets) {
        const double value = target.values[row];
        targets_.push_back(target.labels ? (std::isnan(value) ? -1 : static_cast<int32_t>(value))
                                         : std::bit_cast<int32_t>(static_cast<float>(
                                               (value - standard.mean) / standard.std)));
      }
    }
  }

  int64_t samples() const override { return static_cast<int64_t>(lines_.size()); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    encoder_->expand(&cells_[key.index * encoder_->encodings().size()],
                     reinterpret_cast<float*>(input));
    std::memcpy(target, &targets_[key.index * columns_], columns_ * sizeof(int32_t));
  }

  int32_t label(int64_t index) const override {
    return targets_[static_cast<size_t>(index) * columns_];
  }

  std::vector<int64_t> lines() const override { return lines_; }
  int64_t record_of(int64_t index) const override { return records_[static_cast<size_t>(index)]; }

  std::string name_of(int64_t index) const override {
    return fmt::format("line {} of {}", lines_[static_cast<size_t>(index)], file_);
  }

  int64_t resident_bytes() const override {
    return static_cast<int64_t>(cells_.capacity() * sizeof(uint32_t) +
                                (lines_.capacity() + records_.capacity()) * sizeof(int64_t) +
                                targets_.capacity() * sizeof(int32_t));
  }

 private:
  std::shared_ptr<const TableEncoder> encoder_;
  std::string file_;
  std::vector<uint32_t> cells_;           // (samples, encodings)
  std::vector<int64_t> lines_, records_;  // (samples) in the file; records count from 0
  size_t columns_ = 1;
  std::vector<int32_t> targets_;  // (samples, columns_) labels, or the bits of values
};

// Marks records with invalid targets as bad.
void reject_targets(const std::vector<TableTarget>& decoders,
                    const Targets& targets,
                    TableColumns* table,
                    BadRecordLog* bad) {
  for (TableRecord& record : table->records)
    for (size_t i = 0; i < targets.size(); ++i) {
      if (record.row < 0 || !std::isnan(targets[i].values[record.row])) continue;
      const int64_t row = std::exchange(record.row, -1);
      bad->add(record.line, decoders[i].complaint(*table, row));
    }
}

// A column to predict, with the traits of a model that has only this target.
using WantedTarget = std::pair<std::string, config::ModelTraits>;

bool has_labels(const WantedTarget& wanted) {
  return wanted.second.loss == Loss::kSoftmaxCrossEntropy;
}

Targets decoded(const std::vector<TableTarget>& decoders,
                const std::vector<WantedTarget>& wanted,
                const TableColumns& table) {
  Targets targets;
  for (size_t i = 0; i < decoders.size(); ++i)
    targets.push_back({decoders[i].decode(table), has_labels(wanted[i])});
  return targets;
}

// The decoder of a column. The values of a column that is not of numbers are numbers of classes.
TableTarget decoder_of(const TableSchema& schema,
                       size_t column,
                       const TableColumns& columns,
                       const WantedTarget& wanted,
                       const std::string& file) {
  config::ModelTraits traits = wanted.second;
  if (traits.loss == Loss::kMeanSquaredError &&
      schema.columns[column].kind == ColumnKind::kCategorical) {
    traits.loss = Loss::kSoftmaxCrossEntropy;
    traits.outputs = 0;
  }
  return {schema, column, columns, traits, file};
}

// What a table does for one part of a model's targets: the traits of a model with only this target.
config::ModelTraits traits_of(const config::ModelTraits& model, const config::TargetPart& part) {
  config::ModelTraits traits = model;
  traits.targets.clear();
  traits.outputs = part.type == config::TargetPart::Type::kLabels ? part.classes : 1;
  switch (part.type) {
    case config::TargetPart::Type::kLabels: traits.loss = Loss::kSoftmaxCrossEntropy; break;
    case config::TargetPart::Type::kShares: traits.loss = Loss::kBinaryCrossEntropy; break;
    case config::TargetPart::Type::kValues: traits.loss = Loss::kMeanSquaredError; break;
  }
  return traits;
}

// All those of a model that names its targets, otherwise one.
std::vector<WantedTarget> targets_of(const TableConfig& table, const config::ModelTraits& model) {
  if (model.targets.empty())
    return {{table.targets.empty() ? table.target : table.targets[0], model}};
  std::vector<WantedTarget> targets;
  for (const config::TargetPart& part : model.targets) {
    if (!has_extents(part, {}))
      throw DataError("data.table.targets: the column {} has a number for each sample; {} takes {}",
                      in_quotes(part.name),
                      in_quotes(model.file),
                      extents_in_words(part.extents));
    targets.emplace_back(part.name, traits_of(model, part));
  }
  return targets;
}

// What the records of a table have for a model that names its targets.
std::vector<config::TargetPart> parts_of(const config::ModelTraits& model,
                                         const std::vector<TableTarget>& decoders) {
  std::vector<config::TargetPart> parts = model.targets;
  for (size_t i = 0; i < parts.size(); ++i) {
    parts[i].extents.clear();
    parts[i].any_extents = false;
    if (decoders[i].is_label() && parts[i].classes == 0)
      parts[i].classes = static_cast<int64_t>(decoders[i].classes().size());
  }
  return parts;
}

// The rows of the records that `wanted` selects, in file order. A bad record is skipped, or with
// REPLACE gets the row of the next selected good record (at the end, of the last one).
template <typename Wanted>
std::vector<int64_t> choose_rows(const TableColumns& table, BadRecords policy, Wanted&& wanted) {
  std::vector<int64_t> rows;
  size_t pending = 0;  // bad records to replace, since the last good one
  for (size_t record = 0; record < table.records.size(); ++record) {
    if (!wanted(static_cast<int64_t>(record))) continue;
    const int64_t row = table.records[record].row;
    if (row < 0) {
      pending += policy == BadRecords::kReplace;
      continue;
    }
    rows.insert(rows.end(), std::exchange(pending, 0) + 1, row);
  }
  if (!rows.empty()) rows.insert(rows.end(), pending, rows.back());
  return rows;
}

void check_not_empty(const std::vector<int64_t>& rows,
                     const std::string& name,
                     const std::string& use) {
  if (rows.empty()) throw DataError("{}: has no good records for {}", name, use);
}

config::TableInputs inputs_of(const TableConfig& config,
                              const TableSchema& schema,
                              const TableEncoder& encoder,
                              const Standard& standard) {
  config::TableInputs inputs{.missing = config.missing,
                             .target = schema.columns[schema.target].name,
                             .target_mean = standard.mean,
                             .target_std = standard.std};
  for (const ColumnEncoding& encoding : encoder.encodings())
    inputs.columns.push_back({.name = schema.columns[encoding.column].name,
                              .categorical = encoding.kind == ColumnKind::kCategorical,
                              .mean = encoding.mean,
                              .std = encoding.std,
                              .missing_indicator = encoding.missing_indicator,
                              .categories = encoding.categories});
  return inputs;
}

std::string details_of(const TableEncoder& encoder, const TableTarget& target) {
  int64_t categorical = 0;
  for (const ColumnEncoding& encoding : encoder.encodings())
    categorical += encoding.kind == ColumnKind::kCategorical;
  const auto columns = static_cast<int64_t>(encoder.encodings().size());
  return fmt::format(", {} numeric and {} categorical columns as {} features{}",
                     columns - categorical,
                     categorical,
                     encoder.features(),
                     target.describe_classes());
}

}  // namespace

OpenedData make_table(const TableText& train,
                      const TableText* eval,
                      const DataConfig& config,
                      const TableConfig& table,
                      const config::ModelTraits& model,
                      TableUse use) {
  const std::vector<WantedTarget> wanted = targets_of(table, model);
  std::vector<std::pair<std::string, ColumnKind>> kinds;
  for (const auto& [name, traits] : wanted)
    kinds.emplace_back(name, TableTarget::column_kind(traits.target_kind()));
  TableSchema schema = make_schema(train, table, kinds);
  BadRecordLog bad(config, train.name);
  TableColumns columns = read_columns(train, table, true, &schema, &bad);
  std::vector<TableTarget> decoders;
  for (size_t i = 0; i < wanted.size(); ++i)
    decoders.push_back(decoder_of(schema, schema.targets[i], columns, wanted[i], train.name));
  const TableTarget& target = decoders.front();
  const Targets targets = decoded(decoders, wanted, columns);
  reject_targets(decoders, targets, &columns, &bad);
  bad.require_fraction(static_cast<int64_t>(columns.records.size()));

  // Held-out rows do not train even if other rows are evaluated: the encoder depends on the rows
  // that train.
  const HeldOut held_out = held_out_by(config, table);
  const std::vector<int64_t> rows = choose_rows(
      columns, config.bad_records, [&](int64_t record) { return !held_out.takes(record); });
  check_not_empty(
      rows,
      train.name,
      held_out ? fmt::format("training: {} holds out all; set a smaller one", held_out.text())
               : "training");
  const auto encoder = std::make_shared<const TableEncoder>(schema, columns, rows, train.name);
  const Standard standard =
      table.standardise_target ? standard_of(targets[0].values, rows) : Standard{};
  const auto dataset_of = [&](const TableText& file,
                              const TableColumns& from,
                              const auto& values,
                              const auto& of_rows) {
    return std::make_unique<TableDataset>(
        encoder, file.name, from, values, of_rows, !model.targets.empty(), standard);
  };

  OpenedData opened;
  opened.summary.bad_records = bad.count();
  opened.summary.warnings = find_warnings(train, table, schema, columns, *encoder);
  const auto evaluate_on = [&](const TableText& file,
                               const TableColumns& from,
                               const Targets& values,
                               const std::vector<int64_t>& of_rows) {
    for (std::string& warning : find_unknown_categories(file, schema, from, of_rows, *encoder)) {
      opened.summary.warnings.push_back(std::move(warning));
    }
    opened.eval = dataset_of(file, from, values, of_rows);
  };
  if (use == TableUse::kTraining) opened.train = dataset_of(train, columns, targets, rows);
  if (held_out && eval == nullptr) {
    const std::vector<int64_t> eval_rows = choose_rows(
        columns, config.bad_records, [&](int64_t record) { return held_out.takes(record); });
    check_not_empty(
        eval_rows,
        train.name,
        fmt::format("evaluation: {} holds out none; set a larger one", held_out.text()));
    evaluate_on(train, columns, targets, eval_rows);
    const auto taken = static_cast<int64_t>(eval_rows.size());
    opened.summary.held_out =
        held_out.describe(taken, taken + static_cast<int64_t>(rows.size()), "training samples");
  } else if (eval != nullptr) {
    columns = TableColumns();  // frees the memory before the other file is read
    BadRecordLog eval_bad(config, eval->name);
    const bool inputs_only = use == TableUse::kInputs;
    schema.target_optional = inputs_only;
    TableColumns eval_columns = read_columns(*eval, table, false, &schema, &eval_bad);
    const bool has_targets = schema.columns[schema.target].kind != ColumnKind::kIgnored;
    const Targets eval_targets =
        has_targets
            ? decoded(decoders, wanted, eval_columns)
            : Targets{{std::vector<double>(static_cast<size_t>(eval_columns.rows), std::nan("")),
                       has_labels(wanted[0])}};
    if (!inputs_only) reject_targets(decoders, eval_targets, &eval_columns, &eval_bad);
    eval_bad.require_fraction(static_cast<int64_t>(eval_columns.records.size()));
    const std::vector<int64_t> eval_rows =
        choose_rows(eval_columns, config.bad_records, [](int64_t) { return true; });
    check_not_empty(eval_rows, eval->name, "evaluation");
    evaluate_on(*eval, eval_columns, eval_targets, eval_rows);
    opened.summary.bad_records += eval_bad.count();
  }

  DataSummary& summary = opened.summary;
  summary.features = encoder->features();
  if (target.is_label())
    summary.classes =
        model.outputs > 0 ? model.outputs : static_cast<int64_t>(target.classes().size());
  else
    summary.target_columns = 1;
  if (table.header) summary.target_name = wanted[0].first;
  if (!model.targets.empty()) summary.targets = parts_of(model, decoders);
  summary.class_names = target.classes();
  summary.labels_from = fmt::format("{}: {}", train.name, schema.describe(schema.target));
  if (table.standardise_target) {
    summary.target_mean = {standard.mean};
    summary.target_std = {standard.std};
  }
  summary.preprocessing.table = inputs_of(table, schema, *encoder, standard);
  summary.kind = "table";
  summary.details = details_of(*encoder, target);
  describe(&opened);
  return opened;
}

}  // namespace lockstep::data
