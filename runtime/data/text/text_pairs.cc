// data.text_pairs: tables of pairs or triplets of texts, for embeddings.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/data/format.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/csv.h"
#include "runtime/data/tables/table_columns.h"
#include "runtime/data/text/class_names.h"
#include "runtime/data/text/data_tokenizer.h"
#include "runtime/data/text/encoder_threads.h"
#include "runtime/data/text/text_encoding.h"
#include "runtime/data/text/text_samples.h"
#include "runtime/data/text/text_store.h"
#include "runtime/data/text/text_table.h"

namespace lockstep::data {
namespace {

constexpr char kTokenizerField[] = "data.text_pairs.tokenizer";
constexpr int64_t kRowsPerBatch = 1 << 13;

// The cells of a row; a similarity follows the texts.
enum Cell { kAnchorCell, kPositiveCell, kNegativeCell };
constexpr const char* kCellNames[] = {"anchor", "positive", "negative"};

struct PairSamples {
  explicit PairSamples(const TextForm& form) : texts(form.parts(), form.tokenizer().id_limit()) {}

  TextStore texts;                  // those of a sample one after the other
  std::vector<float> similarities;  // (samples) or empty
  std::vector<int64_t> lines;       // (samples) in the file
  std::vector<int64_t> records;     // (samples) see Dataset::record_of()
  int64_t bad_records = 0;
  int64_t cut = 0;  // samples with a truncated text
  std::vector<std::string> warnings;
};

class PairDataset final : public Dataset {
 public:
  PairDataset(PairSamples samples, const config::ModelTraits& model, int64_t texts)
      : Dataset(text_input(model, /*packed=*/false, texts), text_target(model, /*outputs=*/1)),
        samples_(std::move(samples)),
        context_(model.context),
        texts_(texts) {}

  int64_t samples() const override { return samples_.texts.count() / texts_; }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    auto* const rows = reinterpret_cast<int32_t*>(input);
    for (int64_t text = 0; text < texts_; ++text)
      samples_.texts.read(key.index * texts_ + text, context_, rows + text * kTextRows * context_);
    const float similarity = samples_.similarities.empty()
                                 ? std::numeric_limits<float>::quiet_NaN()
                                 : samples_.similarities[static_cast<size_t>(key.index)];
    std::memcpy(target, &similarity, sizeof(similarity));
  }

  int64_t length(int64_t index) const override {
    int64_t longest = 0;
    for (int64_t text = 0; text < texts_; ++text)
      longest = std::max(longest, samples_.texts.length(index * texts_ + text));
    return longest;
  }
  int64_t tokens(int64_t index) const override {
    int64_t all = 0;
    for (int64_t text = 0; text < texts_; ++text)
      all += samples_.texts.length(index * texts_ + text);
    return all;
  }
  std::vector<int64_t> lines() const override { return samples_.lines; }
  int64_t record_of(int64_t index) const override {
    return samples_.records[static_cast<size_t>(index)];
  }
  int64_t resident_bytes() const override {
    return samples_.texts.resident_bytes() +
           static_cast<int64_t>(samples_.similarities.capacity() * sizeof(float) +
                                samples_.lines.capacity() * sizeof(int64_t) +
                                samples_.records.capacity() * sizeof(int64_t));
  }
  uint64_t checksum() const override {
    Checksum checksum;
    samples_.texts.add_to(&checksum);
    checksum.update(samples_.similarities.data(), samples_.similarities.size() * sizeof(float));
    return checksum.value();
  }

 private:
  PairSamples samples_;
  int64_t context_, texts_;
};

// Reads one file. Blocks of rows are encoded by several threads and then added in order.
class FileReader {
 public:
  FileReader(const DataConfig& data,
             const TextPairsConfig& config,
             const TextForm& form,
             EncoderThreads& threads,
             const std::string& path,
             const std::string& field,
             bool with_similarity)
      : form_(form),
        threads_(threads),
        file_(data.dir, path, field, SourceFile::Gzip::kDecompress),
        texts_(config.negative.empty() ? 2 : 3),
        with_similarity_(with_similarity),
        table_(text_in(file_.bytes(), file_.name()),
               file_.name(),
               text_table_kind(path, "data." + field),
               columns_of(config, with_similarity),
               config.quotes),
        bad_(data, table_.name()),
        samples_(form) {}

  PairSamples read() {
    std::vector<TextTableRow> rows(kRowsPerBatch);
    std::vector<EncodedSample> encoded(kRowsPerBatch);
    for (int64_t count = kRowsPerBatch; count == kRowsPerBatch;) {
      count = 0;
      while (count < kRowsPerBatch && table_.next(&rows[static_cast<size_t>(count)])) ++count;
      threads_.for_each(count, [&](tokenizer::TokenEncoder& encoder, int64_t i) {
        encode(encoder, &rows[static_cast<size_t>(i)], &encoded[static_cast<size_t>(i)]);
      });
      for (int64_t i = 0; i < count; ++i)
        take(rows[static_cast<size_t>(i)], encoded[static_cast<size_t>(i)]);
    }
    return finish();
  }

 private:
  struct EncodedSample {
    EncodedText texts[3];
    float similarity = 0;
  };

  // Beside a similarity, the negative is not read.
  static std::vector<TextColumn> columns_of(const TextPairsConfig& config, bool with_similarity) {
    using Use = TextColumn::Use;
    std::vector<TextColumn> columns = {{"data.text_pairs.anchor", config.anchor},
                                       {"data.text_pairs.positive", config.positive}};
    if (!config.negative.empty())
      columns.push_back({"data.text_pairs.negative",
                         config.negative,
                         with_similarity ? Use::kIgnored : Use::kRequired});
    if (with_similarity) columns.push_back({"data.text_pairs.similarity", config.similarity});
    return columns;
  }

  void encode(tokenizer::TokenEncoder& encoder, TextTableRow* row, EncodedSample* sample) const {
    table_.parse(row);
    if (!row->problem.empty()) return;
    std::vector<uint32_t> ids;
    for (int64_t text = 0; text < texts_; ++text) {
      // A sample with a similarity has no negative: the anchor fills its place.
      const bool read = !with_similarity_ || text != kNegativeCell;
      try {
        ids.clear();
        encoder.encode(row->cells[static_cast<size_t>(read ? text : int64_t{kAnchorCell})],
                       /*with_special=*/false,
                       &ids);
      } catch (const DataError& error) {
        row->problem = error.what();
        return;
      }
      if (ids.empty()) {
        row->problem = fmt::format("its {} has no tokens", kCellNames[text]);
        return;
      }
      form_.assemble(ids, {}, &sample->texts[text]);
    }
    if (!with_similarity_) return;
    const std::string& cell = row->cells[static_cast<size_t>(texts_)];
    double number = 0;
    if (!parse_number(cell, &number))
      row->problem = fmt::format("similarity {} is not a finite float32 number", quote_cell(cell));
    sample->similarity = static_cast<float>(number);
  }

  void take(const TextTableRow& row, const EncodedSample& sample) {
    ++records_;
    if (!row.problem.empty()) {
      bad_.add(row.line, row.problem);
      return;
    }
    ++occurrences_[row.cells[kPositiveCell]];
    for (int64_t times = bad_.take_pending() + 1; times > 0; --times) {
      for (int64_t text = 0; text < texts_; ++text) samples_.texts.add(sample.texts[text]);
      if (with_similarity_) samples_.similarities.push_back(sample.similarity);
      samples_.lines.push_back(row.line);
      samples_.records.push_back(records_ - 1);
    }
    for (int64_t text = 0; text < texts_; ++text) {
      if (!sample.texts[text].cut) continue;
      ++samples_.cut;
      break;
    }
  }

  PairSamples finish() {
    bad_.require_fraction(records_);
    samples_.bad_records = bad_.count();
    if (samples_.lines.empty()) throw DataError("{}: has no good records", table_.name());
    for (int64_t times = bad_.take_pending(); times > 0; --times) add_last_again();
    if (!with_similarity_) warn_of_repetitions();
    samples_.texts.shrink();
    samples_.similarities.shrink_to_fit();
    samples_.lines.shrink_to_fit();
    samples_.records.shrink_to_fit();
    return std::move(samples_);
  }

  void add_last_again() {
    const int64_t first = samples_.texts.count() - texts_;
    for (int64_t text = 0; text < texts_; ++text) samples_.texts.add_again(first + text);
    if (with_similarity_) samples_.similarities.push_back(samples_.similarities.back());
    samples_.lines.push_back(samples_.lines.back());
    samples_.records.push_back(samples_.records.back());
  }

  void warn_of_repetitions() {
    int64_t texts = 0, records = 0;
    for (const auto& [text, times] : occurrences_) {
      if (times < 2) continue;
      ++texts;
      records += times;
    }
    if (texts == 0) return;
    samples_.warnings.push_back(
        fmt::format("{}: {} {} in more than one record ({} records); where two of these are in one "
                    "batch, each is taken for a text that does not belong to the other's anchor",
                    table_.name(),
                    texts,
                    texts == 1 ? "positive is" : "positives are",
                    records));
  }

  const TextForm& form_;
  EncoderThreads& threads_;
  SourceFile file_;
  int64_t texts_;
  bool with_similarity_;
  TextTable table_;
  BadRecordLog bad_;
  PairSamples samples_;
  std::unordered_map<std::string, int64_t> occurrences_;  // of positives, in good records
  int64_t records_ = 0;
};

class TextPairs final : public TextFormat<TextPairsConfig> {
 public:
  using TextFormat::TextFormat;

  bool provides(config::TargetKind kind, config::ModelInput /*input*/) const override {
    return kind == config::TargetKind::kSimilarity;
  }
  void check() const override {
    text_table_kind(config_.train, "data.text_pairs.train");
    if (has_eval()) text_table_kind(config_.eval, "data.text_pairs.eval");
    const std::pair<const char*, const std::string*> columns[] = {
        {"anchor", &config_.anchor},
        {"positive", &config_.positive},
        {"negative", &config_.negative},
        {"similarity", &config_.similarity}};
    for (const auto& [field, column] : columns) {
      const bool required = column == &config_.anchor || column == &config_.positive;
      if (required && column->empty())
        config::refuse_value(fmt::format("data.text_pairs.{}", field),
                             in_quotes(""),
                             "the name or number of a column");
      for (const auto& [other, other_column] : columns) {
        if (other_column == column) break;
        if (!column->empty() && *column == *other_column)
          config::refuse_value(fmt::format("data.text_pairs.{}", field),
                               in_quotes(*column),
                               "a column other than that of data.text_pairs.{}",
                               other);
      }
    }
    if (!config_.similarity.empty() && !has_eval())
      config::refuse_value("data.text_pairs.similarity",
                           in_quotes(config_.similarity),
                           "empty without data.text_pairs.eval, because training does not use it");
  }
  void check_for_model(const config::ModelTraits& model) const override {
    if (model.text_task != config::TextTask::kEmbeddings)
      throw ConfigError(
          "data.text_pairs: needs a model that learns a vector of each text: model.bert with task "
          "EMBEDDINGS");
  }

  OpenedSource open(const config::ModelTraits& model,
                    uint64_t /*seed*/,
                    bool need_train) const override {
    return open_pairs(model, need_train, /*with_similarity=*/!config_.similarity.empty());
  }
  OpenedSource open_inputs(const config::ModelTraits& model, uint64_t /*seed*/) const override {
    return open_pairs(model, /*need_train=*/false, /*with_similarity=*/false);
  }

  PlaceholderData make_placeholder(const MissingFile& missing) const override {
    PlaceholderData placeholder;
    placeholder.what = texts() == 2 ? "pairs of texts" : "triplets of texts";
    placeholder.texts = texts();
    placeholder.vocabulary = placeholder_vocabulary(data_, config_.tokenizer, missing);
    return placeholder;
  }

 private:
  int64_t texts() const { return config_.negative.empty() ? 2 : 3; }

  OpenedData open_pairs(const config::ModelTraits& model,
                        bool need_train,
                        bool with_similarity) const {
    const auto tokenizer = open_data_tokenizer(data_, config_.tokenizer, kTokenizerField);
    const TextForm form(*tokenizer, /*pairs=*/false, model, kTokenizerField);
    EncoderThreads threads(data_, *tokenizer);
    OpenedData opened;
    int64_t cut = 0;
    const auto read = [&](const std::string& path, const std::string& field, bool similarity) {
      PairSamples samples =
          FileReader(data_, config_, form, threads, path, field, similarity).read();
      cut += add_to_summary(samples, &opened.summary);
      return std::make_unique<PairDataset>(std::move(samples), model, texts());
    };
    if (need_train) opened.train = read(config_.train, "text_pairs.train", false);
    if (has_eval()) opened.eval = read(config_.eval, "text_pairs.eval", with_similarity);
    opened.summary.texts = texts();
    opened.summary.has_similarities = with_similarity && has_eval();
    const TextWords words = {
        texts() == 2 ? "pairs of texts" : "triplets of texts", "samples", "classes"};
    summarise_texts(words, model, tokenizer->id_limit(), nullptr, cut, &opened);
    return opened;
  }
};

}  // namespace

template <>
std::unique_ptr<const DataFormat> make_format(const DataConfig& data,
                                              const TextPairsConfig& config) {
  return std::make_unique<TextPairs>(data, config);
}

}  // namespace lockstep::data
