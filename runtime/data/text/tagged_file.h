#pragma once
// Reads and tokenises a file of sentences whose words have tags.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/text/class_names.h"
#include "runtime/data/text/encoder_threads.h"
#include "runtime/data/text/text_encoding.h"
#include "runtime/data/text/text_store.h"

namespace lockstep::data {

struct TaggedSentence {
  int64_t line = 0;     // of the first word or, if there is one, of the problem; from 1
  std::string problem;  // why it cannot be used, or ""
  std::vector<std::string_view> words, tags;
};

// kOptional: lines need not have a tag, words without one have the tag "", and words are kept.
// kIgnored: tags are not read.
enum class TagUse { kRequired, kOptional, kIgnored };

// Splits the text of a file into sentences. Each line has a word, with columns that are separated
// by spaces or tabs. An empty line or a line that begins with -DOCSTART- ends a sentence. The text
// must outlive the reader.
class SentenceReader {
 public:
  SentenceReader(std::string_view text,
                 const TaggedTextConfig& config,
                 TagUse use = TagUse::kRequired);
  // Reads the next sentence. Returns false at the end.
  bool next(TaggedSentence* sentence);

 private:
  void add_word(std::string_view line, TaggedSentence* sentence) const;

  Lines lines_;
  const TaggedTextConfig& config_;
  TagUse use_;
};

// What the files of a data set have in common. Borrows its members.
struct TaggedSource {
  const DataConfig& data;
  const TaggedTextConfig& config;
  const TextForm& form;
  EncoderThreads& threads;
  TagUse use;
};

struct TaggedSamples {
  explicit TaggedSamples(const TextForm& form) : texts(form.parts(), form.tokenizer().id_limit()) {}

  TextStore texts;
  std::vector<int16_t> tags;  // (tokens of all texts) -1: not a target
  // (tokens of all texts) the word that begins with the token, or ""; empty if words are not kept
  std::vector<std::string> words;
  // (texts) see Dataset::record_of(); empty: their indices
  std::vector<int64_t> records;
  int64_t bad_records = 0;
  int64_t cut = 0;  // number of truncated sentences
  std::vector<std::string> warnings;
};

// Reads all sentences of the file that the config field `field` names. The first token of a word
// has the word's tag; its other tokens and special tokens have none. A sentence is bad if a line
// has too few columns or a tag that is not one of `tags`; a word with such an optional tag has
// none. Bad sentences are handled according to data.bad_records. Throws DataError.
TaggedSamples read_tagged_file(const TaggedSource& source,
                               const std::string& path,
                               const std::string& field,
                               ClassNames* tags);

// Reads only the tags of the training file into *tags.
void read_tags(const TaggedSource& source, ClassNames* tags);

// Samples (4, T) i32 as in text_samples.h, targets (T) i32.
std::unique_ptr<Dataset> make_tagged_dataset(TaggedSamples samples,
                                             const config::ModelTraits& model);

}  // namespace lockstep::data
