#pragma once
// Converts text to token ids and back. Tokenizers come from Hugging Face's tokenizer.json,
// SentencePiece's .model, GPT-2's vocab.json with merges.txt, BERT's vocab.txt, or tiktoken's file
// of ranks. The ids are those of the packages `tokenizers`, `sentencepiece`, `transformers` and
// `tiktoken`.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/text_template.h"

namespace lockstep::tokenizer {

// Encodes texts, with memory that it reuses. Used by one thread at a time.
class TokenEncoder {
 public:
  virtual ~TokenEncoder() = default;

  // Appends the ids of a text; `with_special`: including the special tokens that the tokenizer adds
  // before and after each text. Bytes that are not UTF-8 count as U+FFFD, one for each maximal part
  // of a character. Throws DataError if the tokenizer has no id for a part of the text, or if the
  // text has 2 GiB or more.
  virtual void encode(std::string_view text, bool with_special, std::vector<uint32_t>* ids) = 0;
};

// Immutable: any number of threads may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The encoder refers to the tokenizer, which must outlive it.
  virtual std::unique_ptr<TokenEncoder> encoder() const = 0;

  // The text of `ids`. Ids without a token are skipped, and with `skip_special` special tokens too.
  // Bytes that are not UTF-8 become U+FFFD.
  virtual std::string decode(std::span<const uint32_t> ids, bool skip_special) const = 0;

  virtual std::optional<uint32_t> id_of(std::string_view token) const = 0;
  // One more than the largest id.
  virtual uint32_t id_limit() const = 0;
  // Whether an id is never part of a text: [CLS], <s>, padding.
  virtual bool is_special(uint32_t id) const = 0;

  // The template for one text, and for two. The second one is empty if pairs are not supported.
  virtual const TextTemplate& text_template() const = 0;
  virtual const TextTemplate& pair_template() const = 0;
};

// Opens a tokenizer.json, a SentencePiece .model, a vocab.json with merges.txt beside it, a BERT
// vocab.txt, a file of ranks (tiktoken.h), or a folder with one of them
// (runtime/base/tokenizer_files.h). Throws DataError, which
// names the file and the part that is not supported.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path);

// Parses the text of a tokenizer.json; `name` is the file's name for messages. Throws DataError.
std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& name);

struct BertVocabularyOptions {
  // No value: texts are lower-cased unless the vocabulary has capital letters.
  std::optional<bool> lower_case = {};
  // No value: accents are removed if texts are lower-cased.
  std::optional<bool> strip_accents = {};
  bool split_chinese = true;  // each Chinese character is a word
};

// Parses the text of a vocab.txt, which has one token per line, among them [UNK], [CLS] and [SEP].
// Words are split by WordPiece as in BERT (Devlin et al. 2018). Throws DataError.
std::unique_ptr<const Tokenizer> parse_bert_vocabulary(std::string_view text,
                                                       const std::string& name,
                                                       const BertVocabularyOptions& options = {});

// Parses the bytes of a .model file. Throws DataError.
std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name);

}  // namespace lockstep::tokenizer
