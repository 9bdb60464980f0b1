#include "launcher/run/predicted_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/names.h"
#include "runtime/graph/ops/ctc_loss.h"
#include "runtime/metrics/transcript_errors.h"

namespace lockstep::launcher {
namespace {

TableStyle style_of(PredictionFormat format) {
  if (format == PredictionFormat::kJsonLines) return TableStyle::kJsonLines;
  return format == PredictionFormat::kTsv ? TableStyle::kTsv : TableStyle::kCsv;
}

void softmax(std::span<const float> x, std::vector<double>* p) {
  const auto largest = static_cast<double>(*std::ranges::max_element(x));
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    (*p)[i] = std::exp(static_cast<double>(x[i]) - largest);
    sum += (*p)[i];
  }
  for (double& value : *p) value /= sum;
}

double sigmoid(double x) {
  const double small = std::exp(-std::abs(x));
  return (x < 0 ? small : 1) / (1 + small);
}

// Makes the rows of one table, and writes them.
class RowWriter {
 public:
  RowWriter(const PredictedTable& table, const std::filesystem::path& path, TableStyle style)
      : table_(table),
        found_(table.predictions),
        files_(table.dataset.files()),
        lines_(table.dataset.lines()),
        has_words_(found_.tokens > 0 && !table.dataset.words(0).empty()),
        has_labels_(std::ranges::any_of(found_.labels, [](int32_t label) { return label >= 0; })),
        has_values_(std::ranges::any_of(found_.values, [](float v) { return !std::isnan(v); })),
        file_(path, style, columns()) {}

  void write() {
    for (int64_t sample = 0; sample < found_.samples; ++sample) {
      if (found_.tokens == 0) {
        add(sample, sample, {});
      } else if (has_words_) {
        for (const data::SampleWord& word : table_.dataset.words(sample)) add_token(sample, word);
      } else {
        const int64_t length = table_.dataset.length(sample);
        for (int64_t t = 0; t < (length > 0 ? length : found_.tokens); ++t)
          add_token(sample, {t, {}});
      }
    }
    file_.finish();
  }

 private:
  bool of_classes() const {
    return table_.kind == PredictedKind::kClasses || table_.kind == PredictedKind::kYesNo;
  }
  size_t outputs() const { return static_cast<size_t>(found_.columns); }
  // Columns with probabilities or values.
  size_t results() const { return table_.kind == PredictedKind::kYesNo ? 2 : outputs(); }

  std::string name_of(size_t result) const {
    if (result < table_.class_names.size()) return table_.class_names[result];
    if (table_.kind != PredictedKind::kValues || outputs() > 1) return std::to_string(result);
    return table_.target_name.empty() ? "predicted" : table_.target_name;
  }

  // For each output's target a column, unless one is enough.
  bool has_value_columns() const { return has_values_ && outputs() > 1; }

  std::vector<std::string> columns() const {
    std::vector<std::string> names = {files_.empty() ? "row" : "file"};
    if (!lines_.empty()) names.emplace_back("line");
    if (found_.tokens > 0) names.emplace_back(table_.row);
    if (has_words_) names.emplace_back("word");
    if ((has_labels_ || has_values_) && !has_value_columns()) names.emplace_back("label");
    for (size_t i = 0; has_value_columns() && i < outputs(); ++i)
      names.push_back("label " + name_of(i));
    if (of_classes()) {
      names.emplace_back("predicted");
      names.emplace_back("probability");
    }
    for (size_t i = 0; i < results(); ++i) names.push_back(name_of(i));
    return unique_names(std::move(names));
  }

  size_t columns_of_results() const { return results() + (of_classes() ? 2 : 0); }

  void add_token(int64_t sample, const data::SampleWord& word) {
    add(sample, sample * found_.tokens + word.token, word);
  }

  void add(int64_t sample, int64_t row, const data::SampleWord& word) {
    const auto s = static_cast<size_t>(sample), r = static_cast<size_t>(row);
    const std::span<const float> x(&found_.outputs[r * outputs()], outputs());
    cells_.clear();
    if (files_.empty())
      cells_.emplace_back(table_.dataset.record_of(sample));
    else
      cells_.emplace_back(std::string_view(files_[s]));
    if (!lines_.empty()) cells_.emplace_back(lines_[s]);
    if (found_.tokens > 0) cells_.emplace_back(word.token);
    if (has_words_) cells_.emplace_back(std::string_view(word.text));
    if (has_labels_) cells_.push_back(class_cell(found_.labels[r]));
    for (size_t i = 0; has_values_ && i < outputs(); ++i)
      cells_.push_back(value_label(found_.values[r * outputs() + i]));
    add_results(x);
    file_.add(cells_);
  }

  // The name of a class, or its number if it has none; empty if there is none.
  TableCell class_cell(int64_t number) const {
    if (number < 0) return {};
    if (static_cast<size_t>(number) < table_.class_names.size())
      return std::string_view(table_.class_names[static_cast<size_t>(number)]);
    return number;
  }

  TableCell value_label(float value) const {
    if (std::isnan(value)) return {};
    if (table_.kind == PredictedKind::kYesNo && (value == 0 || value == 1))
      return class_cell(static_cast<int64_t>(value));
    return value;
  }

  void add_results(std::span<const float> x) {
    if (std::isnan(x[0])) return cells_.resize(cells_.size() + columns_of_results());
    if (table_.kind == PredictedKind::kValues) {
      for (const float value : x) cells_.emplace_back(value);
      return;
    }
    probabilities_.resize(results());
    int64_t predicted = 0;
    if (table_.kind == PredictedKind::kClasses) {
      softmax(x, &probabilities_);
      predicted = std::ranges::max_element(x) - x.begin();
    } else if (table_.kind == PredictedKind::kYesNo) {
      probabilities_ = {sigmoid(-static_cast<double>(x[0])), sigmoid(static_cast<double>(x[0]))};
      predicted = x[0] > 0 ? 1 : 0;
    } else {
      std::ranges::transform(x, probabilities_.begin(), [](float value) {
        return sigmoid(static_cast<double>(value));
      });
    }
    if (of_classes()) {
      cells_.push_back(class_cell(predicted));
      cells_.emplace_back(static_cast<float>(probabilities_[static_cast<size_t>(predicted)]));
    }
    for (const double p : probabilities_) cells_.emplace_back(static_cast<float>(p));
  }

  const PredictedTable& table_;
  const train::Predictions& found_;
  const std::vector<std::string> files_;
  const std::vector<int64_t> lines_;
  const bool has_words_, has_labels_, has_values_;
  TableFile file_;
  std::vector<double> probabilities_;  // (results)
  std::vector<TableCell> cells_;       // of the current row
};

// The transcripts of all samples.
void write_transcripts(const PredictedTable& table,
                       const std::filesystem::path& path,
                       PredictionFormat format) {
  const train::Predictions& found = table.predictions;
  const auto samples = static_cast<size_t>(found.samples);
  const size_t record = found.labels.size() / samples;  // elements of a target
  const auto target_of = [&](size_t i) {
    return graph::CtcTarget{found.labels.data() + i * record, table.blank};
  };
  bool has_labels = false;
  for (size_t i = 0; i < samples; ++i) has_labels |= target_of(i).counts();
  const std::vector<std::string> files = table.dataset.files();
  const std::vector<int64_t> lines = table.dataset.lines();
  std::vector<std::string> columns = {"file", "line", "predicted"};
  if (has_labels) columns.insert(columns.begin() + 2, "label");
  TableFile file(path, style_of(format), columns);
  const int64_t sample_outputs = found.tokens * found.columns;
  for (size_t i = 0; i < samples; ++i) {
    const graph::CtcTarget target = target_of(i);
    std::vector<TableCell> cells = {std::string_view(files[i]), lines[i]};
    const std::string label =
        target.counts() ? metrics::text_of(target.all_symbols(), table.class_names) : "";
    if (has_labels)
      cells.push_back(target.counts() ? TableCell(std::string_view(label)) : TableCell());
    const std::span<const float> outputs =
        std::span(found.outputs).subspan(i * static_cast<size_t>(sample_outputs));
    const std::string predicted = metrics::text_of(
        metrics::best_path(target.frames(),
                           found.columns,
                           table.blank,
                           [&](int64_t at) { return outputs[static_cast<size_t>(at)]; }),
        table.class_names);
    cells.emplace_back(std::string_view(predicted));
    file.add(cells);
  }
  file.finish();
}

}  // namespace

std::vector<std::string_view> prediction_endings() {
  std::vector<std::string_view> endings;
  for (const PredictionEnding& each : kPredictionEndings) endings.push_back(each.ending);
  return endings;
}

PredictionFormat prediction_format(std::string_view path) {
  const auto* const found = std::ranges::find_if(
      kPredictionEndings,
      [&](const PredictionEnding& each) { return has_suffix(path, each.ending); });
  LOCKSTEP_CHECK(found != std::end(kPredictionEndings), "{} ", path);
  return found->format;
}

void write_table(const PredictedTable& table,
                 const std::filesystem::path& path,
                 PredictionFormat format) {
  if (table.kind == PredictedKind::kTranscripts) return write_transcripts(table, path, format);
  RowWriter(table, path, style_of(format)).write();
}

void write_table(const std::vector<train::DocumentLoss>& documents,
                 const std::filesystem::path& path,
                 PredictionFormat format) {
  TableFile file(path, style_of(format), {"row", "document", "counted", "loss"});
  for (const train::DocumentLoss& each : documents)
    file.add({{each.sample, each.document, each.counted, static_cast<float>(each.loss)}});
  file.finish();
}

// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, version 1.0: the magic
// bytes, the version, the size of the header (u16), and the header, which ends a block of 64 bytes.
void write_npy(const std::filesystem::path& path,
               const std::vector<int64_t>& extents,
               std::span<const float> values) {
  std::string shape;
  for (const int64_t extent : extents) shape += fmt::format("{}, ", extent);
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", shape);
  constexpr size_t kBefore = 10, kBlock = 64;
  header.append(kBlock - (kBefore + header.size() + 1) % kBlock, ' ').append("\n");
  FileWriter file(path);
  file.write(std::string_view("\x93NUMPY\x01\x00", 8));
  const auto size = static_cast<uint16_t>(header.size());
  const char size_bytes[] = {static_cast<char>(size & 0xff), static_cast<char>(size >> 8)};
  file.write(size_bytes, sizeof(size_bytes));
  file.write(header);
  file.write(values.data(), values.size_bytes());
  file.finish();
}

}  // namespace lockstep::launcher
