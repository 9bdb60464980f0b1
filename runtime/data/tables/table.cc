#include "runtime/data/tables/table.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/data/held_out.h"
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

class TableDataset final : public Dataset {
 public:
  // `file`: the name of the table's file.
  TableDataset(std::shared_ptr<const TableEncoder> encoder,
               std::string file,
               const TableColumns& table,
               const std::vector<double>& targets,
               const std::vector<int64_t>& rows,
               bool labels,
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
    target_ = labels ? SampleSpec{DType::kI32, Shape{}} : SampleSpec{DType::kF32, Shape{1}};
    for (const int64_t row : rows) {
      const int64_t record = record_of_row[static_cast<size_t>(row)];
      records_.push_back(record);
      lines_.push_back(table.records[static_cast<size_t>(record)].line);
      if (labels)
        labels_.push_back(std::isnan(targets[row]) ? -1 : static_cast<int32_t>(targets[row]));
      else
        values_.push_back(static_cast<float>((targets[row] - standard.mean) / standard.std));
    }
  }

  int64_t samples() const override { return static_cast<int64_t>(labels_.size() + values_.size()); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    encoder_->expand(&cells_[key.index * encoder_->encodings().size()],
                     reinterpret_cast<float*>(input));
    if (!labels_.empty())
      std::memcpy(target, &labels_[key.index], sizeof(int32_t));
    else
      std::memcpy(target, &values_[key.index], sizeof(float));
  }

  int32_t label(int64_t index) const override { return labels_[static_cast<size_t>(index)]; }

  std::vector<int64_t> lines() const override { return lines_; }
  int64_t record_of(int64_t index) const override { return records_[static_cast<size_t>(index)]; }

  std::string name_of(int64_t index) const override {
    return fmt::format("line {} of {}", lines_[static_cast<size_t>(index)], file_);
  }

  int64_t resident_bytes() const override {
    return static_cast<int64_t>(cells_.capacity() * sizeof(uint32_t) +
                                (lines_.capacity() + records_.capacity()) * sizeof(int64_t) +
                                labels_.capacity() * sizeof(int32_t) +
                                values_.capacity() * sizeof(float));
  }

 private:
  std::shared_ptr<const TableEncoder> encoder_;
  std::string file_;
  std::vector<uint32_t> cells_;           // (samples, encodings)
  std::vector<int64_t> lines_, records_;  // (samples) in the file; records count from 0
  std::vector<int32_t> labels_;           // (samples), or empty
  std::vector<float> values_;             // (samples), or empty
};

// Marks records with invalid targets as bad.
void reject_targets(const TableTarget& target,
                    const std::vector<double>& targets,
                    TableColumns* table,
                    BadRecordLog* bad) {
  for (TableRecord& record : table->records) {
    if (record.row < 0 || !std::isnan(targets[record.row])) continue;
    const int64_t row = std::exchange(record.row, -1);
    bad->add(record.line, target.complaint(*table, row));
  }
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
  TableSchema schema = make_schema(train, table, TableTarget::column_kind(model.loss));
  BadRecordLog bad(config, train.name);
  TableColumns columns = read_columns(train, table, true, &schema, &bad);
  const TableTarget target(schema, columns, model, train.name);
  const std::vector<double> targets = target.decode(columns);
  reject_targets(target, targets, &columns, &bad);
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
  const Standard standard = table.standardise_target ? standard_of(targets, rows) : Standard{};
  const auto dataset_of = [&](const TableText& file,
                              const TableColumns& from,
                              const auto& values,
                              const auto& of_rows) {
    return std::make_unique<TableDataset>(
        encoder, file.name, from, values, of_rows, target.is_label(), standard);
  };

  OpenedData opened;
  opened.summary.bad_records = bad.count();
  opened.summary.warnings = find_warnings(train, table, schema, columns, *encoder);
  const auto evaluate_on = [&](const TableText& file,
                               const TableColumns& from,
                               const std::vector<double>& values,
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
    const std::vector<double> eval_targets =
        has_targets ? target.decode(eval_columns)
                    : std::vector<double>(static_cast<size_t>(eval_columns.rows), std::nan(""));
    if (!inputs_only) reject_targets(target, eval_targets, &eval_columns, &eval_bad);
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
  if (table.header) summary.target_name = table.target;
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
