#include "runtime/data/text/labelled_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"
#include "runtime/data/tables/table_columns.h"
#include "runtime/data/text/text_samples.h"
#include "runtime/data/text/text_table.h"

namespace lockstep::data {
namespace {

constexpr int64_t kRowsPerBatch = 1 << 13;
constexpr int64_t kMaxClasses = 10'000'000;

enum Cell { kLabelCell, kTextCell, kSecondCell };

std::vector<TextColumn> columns_of(const LabelledTextConfig& config, LabelledParts parts) {
  using Use = TextColumn::Use;
  const Use label = parts == LabelledParts::kTexts               ? Use::kIgnored
                    : parts == LabelledParts::kTextsAndAnyLabels ? Use::kOptional
                                                                 : Use::kRequired;
  std::vector<TextColumn> columns = {{"data.labelled_text.label", config.label, label},
                                     {"data.labelled_text.text", config.text}};
  if (!config.second_text.empty())
    columns.push_back({"data.labelled_text.second_text", config.second_text});
  return columns;
}

class LabelledDataset final : public Dataset {
 public:
  LabelledDataset(LabelledSamples samples, const config::ModelTraits& model)
      : Dataset(text_input(model, /*packed=*/false), text_target(model, /*outputs=*/1)),
        samples_(std::move(samples)),
        context_(model.context) {}

  int64_t samples() const override { return samples_.texts.count(); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    samples_.texts.read(key.index, context_, reinterpret_cast<int32_t*>(input));
    const auto i = static_cast<size_t>(key.index);
    if (!samples_.values.empty())
      std::memcpy(target, &samples_.values[i], sizeof(float));
    else if (!samples_.labels.empty())
      std::memcpy(target, &samples_.labels[i], sizeof(int32_t));
    else
      std::memset(target, 0xff, target_.bytes());  // -1, or NaN
  }

  int64_t length(int64_t index) const override { return samples_.texts.length(index); }
  int32_t label(int64_t index) const override {
    return samples_.labels.empty() ? -1 : samples_.labels[static_cast<size_t>(index)];
  }
  std::vector<int64_t> lines() const override { return samples_.lines; }
  int64_t record_of(int64_t index) const override {
    return samples_.records.empty() ? index : samples_.records[static_cast<size_t>(index)];
  }
  int64_t resident_bytes() const override {
    return samples_.texts.resident_bytes() +
           static_cast<int64_t>(samples_.labels.capacity() * sizeof(int32_t) +
                                samples_.values.capacity() * sizeof(float) +
                                samples_.lines.capacity() * sizeof(int64_t) +
                                samples_.records.capacity() * sizeof(int64_t));
  }
  uint64_t checksum() const override {
    Checksum checksum;
    samples_.texts.add_to(&checksum);
    checksum.update(samples_.labels.data(), samples_.labels.size() * sizeof(int32_t));
    checksum.update(samples_.values.data(), samples_.values.size() * sizeof(float));
    return checksum.value();
  }

 private:
  LabelledSamples samples_;
  int64_t context_;
};

// Reads the rows of one file. Blocks of rows are encoded by several threads and then added in
// order.
class FileReader {
 public:
  FileReader(const LabelledSource& source,
             const std::string& path,
             const std::string& field,
             bool trains,
             LabelledParts parts,
             ClassNames* classes)
      : source_(source),
        file_(source.data.dir, path, field, SourceFile::Gzip::kDecompress),
        table_(text_in(file_.bytes(), file_.name()),
               file_.name(),
               text_table_kind(path, "data." + field),
               columns_of(source.config, parts),
               source.config.quotes),
        with_labels_(parts != LabelledParts::kTexts),
        with_texts_(parts != LabelledParts::kLabels),
        any_labels_(parts == LabelledParts::kTextsAndAnyLabels),
        collects_(trains && with_labels_ && !classes->listed()),
        classes_(*classes),
        bad_(source.data, table_.name()),
        samples_(source.form) {}

  LabelledSamples read() {
    std::vector<TextTableRow> rows(kRowsPerBatch);
    std::vector<EncodedText> encoded(kRowsPerBatch);
    for (int64_t count = kRowsPerBatch; count == kRowsPerBatch;) {
      count = 0;
      while (count < kRowsPerBatch && table_.next(&rows[static_cast<size_t>(count)])) ++count;
      source_.threads.for_each(count, [&](tokenizer::TokenEncoder& encoder, int64_t i) {
        encode(encoder, &rows[static_cast<size_t>(i)], &encoded[static_cast<size_t>(i)]);
      });
      for (int64_t i = 0; i < count; ++i)
        take(&rows[static_cast<size_t>(i)], encoded[static_cast<size_t>(i)]);
    }
    return finish();
  }

 private:
  bool has_values() const { return source_.model.text_task == config::TextTask::kSequenceValues; }

  void encode(tokenizer::TokenEncoder& encoder, TextTableRow* row, EncodedText* encoded) const {
    table_.parse(row);
    if (!row->problem.empty() || !with_texts_) return;
    std::vector<uint32_t> first, second;
    try {
      encoder.encode(row->cells[kTextCell], /*with_special=*/false, &first);
      if (row->cells.size() > kSecondCell)
        encoder.encode(row->cells[kSecondCell], /*with_special=*/false, &second);
    } catch (const DataError& error) {
      row->problem = error.what();
      return;
    }
    source_.form.assemble(first, second, encoded);
    if (encoded->ids.empty()) row->problem = "its text has no tokens";
  }

  void take(TextTableRow* row, const EncodedText& encoded) {
    ++records_;
    int32_t label = 0;
    float value = 0;
    if (row->problem.empty() && with_labels_)
      has_values() ? read_value(row, &value) : read_label(row, &label);
    if (!row->problem.empty()) {
      bad_.add(row->line, row->problem);
      return;
    }
    if (first_label_ < 0) first_label_ = label;
    for (int64_t times = bad_.take_pending() + 1; times > 0; --times) {
      ++good_;
      samples_.records.push_back(records_ - 1);
      if (with_texts_) samples_.texts.add(encoded);
      if (any_labels_) samples_.lines.push_back(row->line);
      if (with_labels_)
        has_values() ? samples_.values.push_back(value) : samples_.labels.push_back(label);
    }
    samples_.cut += encoded.cut ? 1 : 0;
  }

  // While classes are being collected, a label is the index of its name in order of appearance.
  // number_classes() replaces it.
  void read_label(TextTableRow* row, int32_t* label) {
    const std::string& name = row->cells[kLabelCell];
    if (any_labels_) {
      *label = name.empty() ? -1 : classes_.class_of(name);
    } else if (name.empty()) {
      row->problem = "its label is empty";
    } else if (collects_) {
      const auto [found, is_new] = seen_.emplace(name, static_cast<int32_t>(names_.size()));
      if (is_new) {
        names_.push_back(name);
        first_lines_.push_back(row->line);
      }
      *label = found->second;
    } else if ((*label = classes_.class_of(name)) < 0) {
      row->problem = fmt::format("label {} is not one of the classes {}{}",
                                 quote_cell(name),
                                 classes_.list(),
                                 classes_.look_alike(name));
    }
  }

  void read_value(TextTableRow* row, float* value) const {
    double number = 0;
    if (parse_number(row->cells[kLabelCell], &number))
      *value = static_cast<float>(number);
    else if (any_labels_)
      *value = std::numeric_limits<float>::quiet_NaN();
    else
      row->problem = fmt::format("label {} is not a finite float32 number",
                                 quote_cell(row->cells[kLabelCell]));
  }

  LabelledSamples finish() {
    bad_.require_fraction(records_);
    samples_.bad_records = bad_.count();
    if (good_ == 0) throw DataError("{}: has no good records", table_.name());
    for (int64_t times = bad_.take_pending(); times > 0; --times) add_last_again();
    if (collects_ && !has_values()) number_classes();
    if (bad_.count() == 0) samples_.records = {};
    samples_.texts.shrink();
    samples_.labels.shrink_to_fit();
    samples_.values.shrink_to_fit();
    samples_.lines.shrink_to_fit();
    return std::move(samples_);
  }

  void add_last_again() {
    samples_.records.push_back(samples_.records.back());
    if (with_texts_) samples_.texts.add_again(samples_.texts.count() - 1);
    if (any_labels_) samples_.lines.push_back(samples_.lines.back());
    if (!with_labels_) return;
    if (has_values())
      samples_.values.push_back(samples_.values.back());
    else
      samples_.labels.push_back(samples_.labels.back());
  }

  void number_classes() {
    std::vector<int64_t> samples(names_.size());
    for (const int32_t label : samples_.labels) ++samples[static_cast<size_t>(label)];
    for (size_t i = 0; i < names_.size(); ++i) classes_.collect(names_[i], samples[i]);
    classes_.finish(/*numbers_are_classes=*/true, kMaxClasses);
    if (table_.first_line_is_row() && first_label_ == 0 && names_.size() > 2 &&
        std::ranges::count(samples_.labels, 0) == 1)
      samples_.warnings.push_back(fmt::format(
          "{}: no other line has the label {} of the first line; if that line has the names of the "
          "columns, give data.labelled_text.label and the other columns by name",
          table_.name(),
          quote_cell(names_[0])));
    else if (!classes_.odd_name().empty())
      warn_of_odd_name(classes_.odd_name());
    std::vector<int32_t> class_of;
    for (const std::string& name : names_) class_of.push_back(classes_.class_of(name));
    for (int32_t& label : samples_.labels) label = class_of[static_cast<size_t>(label)];
  }

  void warn_of_odd_name(const std::string& name) {
    const auto line = first_lines_[static_cast<size_t>(seen_.at(name))];
    samples_.warnings.push_back(fmt::format(
        "{}:{}: label {} is not a non-negative integer, although most labels are, so all {} labels "
        "are taken as names, sorted as text",
        table_.name(),
        line,
        quote_cell(name),
        names_.size()));
  }

  const LabelledSource& source_;
  SourceFile file_;
  TextTable table_;
  bool with_labels_, with_texts_, any_labels_, collects_;
  ClassNames& classes_;
  BadRecordLog bad_;
  LabelledSamples samples_;
  std::unordered_map<std::string, int32_t> seen_;
  std::vector<std::string> names_;    // of labels, in order of appearance
  std::vector<int64_t> first_lines_;  // (names_) the line on which each appears first
  int64_t records_ = 0;
  int64_t good_ = 0;  // good records and copies that replace bad ones
  int32_t first_label_ = -1;
};

}  // namespace

LabelledSamples read_labelled_file(const LabelledSource& source,
                                   const std::string& path,
                                   const std::string& field,
                                   bool trains,
                                   LabelledParts parts,
                                   ClassNames* classes) {
  return FileReader(source, path, field, trains, parts, classes).read();
}

std::unique_ptr<Dataset> make_labelled_dataset(LabelledSamples samples,
                                               const config::ModelTraits& model) {
  return std::make_unique<LabelledDataset>(std::move(samples), model);
}

}  // namespace lockstep::data
