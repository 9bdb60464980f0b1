#pragma once
// A file of sentences whose words have tags, read and tokenised.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/config/run_config.h"
#include "runtime/data/dataset.h"
#include "runtime/data/text/class_names.h"
#include "runtime/data/text/encoder_threads.h"
#include "runtime/data/text/text_encoding.h"
#include "runtime/data/text/text_store.h"

namespace lockstep {

struct TaggedSentence {
  int64_t line = 0;     // of its first word or, where it has a problem, of that; from 1
  std::string problem;  // why it cannot be used; empty: it can
  std::vector<std::string_view> words, tags;
};

// Cuts the text of a file into sentences: a word a line, its columns apart by blanks or tabs, and an
// empty line after each. Lines of -DOCSTART- end a sentence, too. The text must outlive it.
class SentenceReader {
 public:
  // Without tags, lines need only the column of words.
  SentenceReader(std::string_view text, const TaggedTextConfig& config, bool with_tags = true);
  // False at the end.
  bool next(TaggedSentence* sentence);

 private:
  void add_word(std::string_view line, TaggedSentence* sentence) const;

  std::string_view text_;
  const TaggedTextConfig& config_;
  bool with_tags_;
  size_t position_ = 0;
  int64_t line_ = 0;
};

// What files of a data set have in common; borrowed.
struct TaggedSource {
  const DataConfig& data;
  const TaggedTextConfig& config;
  const TextForm& form;
  EncoderThreads& threads;
  bool with_tags;  // false: files need not have them, and no token has one
};

struct TaggedSamples {
  explicit TaggedSamples(const TextForm& form) : texts(form.parts(), form.tokenizer().id_limit()) {}

  TextStore texts;
  std::vector<int16_t> tags;  // of each token of the texts; -1: not counted
  int64_t bad_records = 0;
  int64_t cut = 0;                  // sentences that were too long
  std::vector<std::string> doubts;  // what looks wrong
};

// Reads all sentences of a file, which `field` of the config names. The first piece of a word has its
// tag, the others and special tokens have none. Bad are sentences with a line of too few columns or
// with a tag that is none of `tags`; what they do, data.bad_records says. `trains`: of the training
// file, whose tags become `tags` where none are listed. Throws DataError.
TaggedSamples read_tagged_file(const TaggedSource& source,
                               const std::string& path,
                               const std::string& field,
                               bool trains,
                               ClassNames* tags);

// Collects the tags of the training file alone.
void read_tags(const TaggedSource& source, ClassNames* tags);

// Samples (4, T) i32 as in text_samples.h, targets (T) i32.
std::unique_ptr<Dataset> make_tagged_dataset(TaggedSamples samples, const ModelTraits& model);

}  // namespace lockstep
