#include "runtime/data/text/tagged_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/odd_characters.h"
#include "runtime/base/text.h"
#include "runtime/data/source_file.h"
#include "runtime/data/tables/column_names.h"
#include "runtime/data/tables/table_columns.h"
#include "runtime/data/text/text_samples.h"

namespace lockstep::data {
namespace {

constexpr int64_t kSentencesPerBatch = 1 << 12;
constexpr int64_t kMaxTags = std::numeric_limits<int16_t>::max();
constexpr std::string_view kDocumentStart = "-DOCSTART-";
constexpr std::string_view kBlanks = " \t";

class TaggedDataset final : public Dataset {
 public:
  TaggedDataset(TaggedSamples samples, const config::ModelTraits& model)
      : Dataset(text_input(model, /*packed=*/false), text_target(model, /*outputs=*/0)),
        samples_(std::move(samples)),
        context_(model.context) {}

  int64_t samples() const override { return samples_.texts.count(); }

  void read(const SampleKey& key, std::byte* input, std::byte* target) const override {
    samples_.texts.read(key.index, context_, reinterpret_cast<int32_t*>(input));
    auto* const targets = reinterpret_cast<int32_t*>(target);  // (T)
    const auto first = samples_.tags.begin() + samples_.texts.begin(key.index);
    int32_t* const end = std::copy_n(first, samples_.texts.length(key.index), targets);
    std::fill(end, targets + context_, -1);
  }

  int64_t length(int64_t index) const override { return samples_.texts.length(index); }
  std::vector<SampleWord> words(int64_t index) const override {
    std::vector<SampleWord> words;
    const int64_t first = samples_.texts.begin(index);
    for (int64_t t = 0; !samples_.words.empty() && t < length(index); ++t)
      if (const std::string& word = samples_.words[static_cast<size_t>(first + t)]; !word.empty())
        words.push_back({t, word});
    return words;
  }
  int64_t record_of(int64_t index) const override {
    return samples_.records.empty() ? index : samples_.records[static_cast<size_t>(index)];
  }
  LabelCounts label_counts() const override {
    LabelCounts counts;
    for (const int16_t tag : samples_.tags)
      if (tag >= 0) counts.add(tag);
    return counts;
  }
  int64_t resident_bytes() const override {
    return samples_.texts.resident_bytes() +
           static_cast<int64_t>(samples_.tags.capacity() * sizeof(int16_t) +
                                samples_.words.capacity() * sizeof(std::string) +
                                samples_.records.capacity() * sizeof(int64_t));
  }
  uint64_t checksum() const override {
    Checksum checksum;
    samples_.texts.add_to(&checksum);
    checksum.update(samples_.tags.data(), samples_.tags.size() * sizeof(int16_t));
    return checksum.value();
  }

 private:
  TaggedSamples samples_;
  int64_t context_;
};

SourceFile open_file(const TaggedSource& source,
                     const std::string& path,
                     const std::string& field) {
  return SourceFile(source.data.dir, path, field, SourceFile::Gzip::kDecompress);
}

std::string_view text_of(const SourceFile& file) { return text_in(file.bytes(), file.name()); }

// Whether a word has different tokens after a space. Then every word is encoded with a space before
// it, because words inside a text have one.
bool needs_space(const tokenizer::Tokenizer& tokenizer) {
  std::vector<uint32_t> alone, after_space;
  const auto encoder = tokenizer.encoder();
  encoder->encode("a", /*with_special=*/false, &alone);
  encoder->encode(" a", /*with_special=*/false, &after_space);
  return alone != after_space;
}

struct EncodedSentence {
  EncodedText text;
  std::vector<int32_t> word_of;  // (tokens) index of the word that begins with it; -1: none
};

class FileReader {
 public:
  FileReader(const TaggedSource& source,
             const std::string& path,
             const std::string& field,
             ClassNames* tags)
      : source_(source),
        file_(open_file(source, path, field)),
        tags_(*tags),
        add_space_(needs_space(source.form.tokenizer())),
        bad_(source.data, file_.name()),
        samples_(source.form) {
    for (const tokenizer::TemplatePart& part : source.form.parts()) {
      if (part.text != tokenizer::TemplatePart::kSpecial) break;
      before_ += part.ids.size();
    }
  }

  TaggedSamples read() {
    SentenceReader reader(text_of(file_), source_.config, source_.use);
    std::vector<TaggedSentence> sentences(kSentencesPerBatch);
    std::vector<EncodedSentence> encoded(kSentencesPerBatch);
    for (int64_t count = kSentencesPerBatch; count == kSentencesPerBatch;) {
      count = 0;
      while (count < kSentencesPerBatch && reader.next(&sentences[static_cast<size_t>(count)]))
        ++count;
      source_.threads.for_each(count, [&](tokenizer::TokenEncoder& encoder, int64_t i) {
        encode(encoder, &sentences[static_cast<size_t>(i)], &encoded[static_cast<size_t>(i)]);
      });
      for (int64_t i = 0; i < count; ++i)
        take(&sentences[static_cast<size_t>(i)], encoded[static_cast<size_t>(i)]);
    }
    return finish();
  }

 private:
  void encode(tokenizer::TokenEncoder& encoder,
              TaggedSentence* sentence,
              EncodedSentence* encoded) const {
    if (!sentence->problem.empty()) return;
    std::vector<uint32_t> ids;
    std::vector<int32_t> word_of;
    std::string word;
    try {
      for (size_t w = 0; w < sentence->words.size(); ++w) {
        word.assign(add_space_ ? " " : "").append(sentence->words[w]);
        encoder.encode(word, /*with_special=*/false, &ids);
        if (word_of.size() == ids.size()) continue;  // the word has no tokens
        word_of.push_back(static_cast<int32_t>(w));
        word_of.resize(ids.size(), -1);
      }
    } catch (const DataError& error) {
      sentence->problem = error.what();
      return;
    }
    source_.form.assemble(ids, {}, &encoded->text);
    encoded->word_of.assign(encoded->text.ids.size(), -1);
    std::copy_n(word_of.begin(),
                encoded->text.first_length,
                encoded->word_of.begin() + static_cast<std::ptrdiff_t>(before_));
    if (ids.empty()) sentence->problem = "its words have no tokens";
  }

  void take(TaggedSentence* sentence, const EncodedSentence& encoded) {
    ++records_;
    const std::string problem = problem_of(*sentence);
    if (!problem.empty()) {
      bad_.add(sentence->line, problem);
      return;
    }
    std::vector<int16_t> tags;
    std::vector<std::string> words;
    for (const int32_t word : encoded.word_of) {
      const auto w = static_cast<size_t>(word);
      const bool has_tag = word >= 0 && source_.use != TagUse::kIgnored;
      tags.push_back(has_tag ? static_cast<int16_t>(tags_.class_of(sentence->tags[w])) : -1);
      if (source_.use != TagUse::kRequired)
        words.emplace_back(word < 0 ? std::string_view() : sentence->words[w]);
    }
    for (int64_t times = bad_.take_pending() + 1; times > 0; --times) {
      samples_.records.push_back(records_ - 1);
      samples_.texts.add(encoded.text);
      samples_.tags.insert(samples_.tags.end(), tags.begin(), tags.end());
      samples_.words.insert(samples_.words.end(), words.begin(), words.end());
    }
    samples_.cut += encoded.text.cut ? 1 : 0;
  }

  std::string problem_of(const TaggedSentence& sentence) const {
    if (!sentence.problem.empty()) return sentence.problem;
    if (source_.use != TagUse::kRequired) return "";
    for (size_t w = 0; w < sentence.tags.size(); ++w)
      if (tags_.class_of(sentence.tags[w]) < 0)
        return fmt::format("the word {} of the sentence has the tag {}, which is not one of {}{}",
                           quote_cell(sentence.words[w]),
                           quote_cell(sentence.tags[w]),
                           tags_.list(),
                           tags_.look_alike(std::string(sentence.tags[w])));
    return "";
  }

  TaggedSamples finish() {
    bad_.require_fraction(records_);
    samples_.bad_records = bad_.count();
    if (samples_.texts.count() == 0) throw DataError("{}: has no good sentences", file_.name());
    for (int64_t times = bad_.take_pending(); times > 0; --times) {
      const int64_t last = samples_.texts.count() - 1;
      const auto first = static_cast<size_t>(samples_.texts.begin(last));
      samples_.records.push_back(samples_.records.back());
      samples_.texts.add_again(last);
      add_last_again(first, &samples_.tags);
      if (!samples_.words.empty()) add_last_again(first, &samples_.words);
    }
    if (bad_.count() == 0) samples_.records = {};
    samples_.texts.shrink();
    samples_.tags.shrink_to_fit();
    return std::move(samples_);
  }

  // Appends a copy of the elements from `first` on.
  template <typename T>
  static void add_last_again(size_t first, std::vector<T>* values) {
    const std::vector<T> last(values->begin() + static_cast<std::ptrdiff_t>(first), values->end());
    values->insert(values->end(), last.begin(), last.end());
  }

  const TaggedSource& source_;
  SourceFile file_;
  ClassNames& tags_;
  bool add_space_;
  size_t before_ = 0;  // number of special tokens before the words
  BadRecordLog bad_;
  TaggedSamples samples_;
  int64_t records_ = 0;
};

}  // namespace

SentenceReader::SentenceReader(std::string_view text, const TaggedTextConfig& config, TagUse use)
    : lines_(text), config_(config), use_(use) {}

bool SentenceReader::next(TaggedSentence* sentence) {
  *sentence = {};
  for (std::string_view line; lines_.next(&line);) {
    const bool ends = line.find_first_not_of(kBlanks) == std::string_view::npos ||
                      line.starts_with(kDocumentStart);
    if (ends) {
      if (sentence->line > 0) return true;
      continue;
    }
    if (sentence->line == 0) sentence->line = lines_.number();
    if (sentence->problem.empty()) add_word(line, sentence);
  }
  return sentence->line > 0;
}

void SentenceReader::add_word(std::string_view line, TaggedSentence* sentence) const {
  std::vector<std::string_view> columns;
  for (size_t at = line.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    columns.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlanks, end);
  }
  const auto count = static_cast<int64_t>(columns.size());
  const int64_t tag = config_.tag < 0 ? count - 1 : config_.tag;
  const bool has_tag = tag < count && tag != config_.word;
  const bool needs_tag = use_ == TagUse::kRequired;
  if (config_.word >= count || (needs_tag && !has_tag)) {
    std::string wanted = fmt::format("the word is column {}", config_.word);
    if (needs_tag)
      wanted += config_.tag < 0 ? ", the tag the last one after it"
                                : fmt::format(", the tag column {}", tag);
    sentence->line = lines_.number();
    const size_t odd = find_non_ascii(line);
    const std::string remark = odd == std::string_view::npos || !is_odd_blank(line, odd)
                                   ? ""
                                   : fmt::format(" ({})", describe_odd_character(line, odd));
    sentence->problem = fmt::format("has {} column{}; {}{}", count, plural(count), wanted, remark);
    return;
  }
  sentence->words.push_back(columns[static_cast<size_t>(config_.word)]);
  if (use_ == TagUse::kIgnored) return;
  sentence->tags.push_back(has_tag ? columns[static_cast<size_t>(tag)] : std::string_view());
}

void read_tags(const TaggedSource& source, ClassNames* tags) {
  const SourceFile file = open_file(source, source.config.train, "tagged_text.train");
  SentenceReader reader(text_of(file), source.config);
  for (TaggedSentence sentence; reader.next(&sentence);)
    if (sentence.problem.empty())
      for (const std::string_view tag : sentence.tags) tags->collect(tag);
  tags->finish(/*numbers_are_classes=*/false, kMaxTags);
  if (tags->classes() > kMaxTags)
    throw DataError(
        "{}: has {} different tags; allowed: up to {}", file.name(), tags->classes(), kMaxTags);
}

TaggedSamples read_tagged_file(const TaggedSource& source,
                               const std::string& path,
                               const std::string& field,
                               ClassNames* tags) {
  return FileReader(source, path, field, tags).read();
}

std::unique_ptr<Dataset> make_tagged_dataset(TaggedSamples samples,
                                             const config::ModelTraits& model) {
  return std::make_unique<TaggedDataset>(std::move(samples), model);
}

}  // namespace lockstep::data
