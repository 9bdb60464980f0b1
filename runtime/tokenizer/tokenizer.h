#pragma once
// Text to token ids and back. Tokenizers come from Hugging Face's tokenizer.json, SentencePiece's
// .model or BERT's vocab.txt, and give the ids that the `tokenizers`, `sentencepiece` and
// `transformers` packages give.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/text_template.h"

namespace lockstep {

// Turns texts into ids, with memory that it keeps from text to text: of one thread at a time.
class TokenEncoder {
 public:
  virtual ~TokenEncoder() = default;

  // Appends the ids of a text, `with_special`: and those that the tokenizer puts before and after
  // each text. Bytes that are not UTF-8 count as U+FFFD, one for each maximal part of a character.
  // Throws DataError where the tokenizer has no id for a text, or on texts of 2 GiB or more.
  virtual void encode(std::string_view text, bool with_special, std::vector<uint32_t>* ids) = 0;
};

// Constant once made: any number of threads may use it.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Refers to the tokenizer, which must live as long.
  virtual std::unique_ptr<TokenEncoder> encoder() const = 0;

  // The text of ids; ids of no token are left out, and with `skip_special` special tokens, too.
  // Bytes that are not UTF-8 become U+FFFD.
  virtual std::string decode(std::span<const uint32_t> ids, bool skip_special) const = 0;

  virtual std::optional<uint32_t> id_of(std::string_view token) const = 0;
  // One more than the largest id.
  virtual uint32_t id_limit() const = 0;
  // Whether an id is no part of any text: [CLS], <s>, padding.
  virtual bool is_special(uint32_t id) const = 0;

  // The special tokens around one text, or around two. Empty: it has no form for two.
  virtual const TextTemplate& text_template() const = 0;
  virtual const TextTemplate& pair_template() const = 0;
};

// A tokenizer.json, a .model of SentencePiece, a vocab.txt of BERT, or a folder with tokenizer.json
// or else tokenizer.model or else vocab.txt. Throws DataError that names the file, and what of it is
// not known.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path);

// Of a tokenizer.json's text; `name` is the file's for messages. Throws DataError.
std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& name);

struct BertVocabularyOptions {
  // None: texts are lower-cased unless the vocabulary has capital letters.
  std::optional<bool> lower_case = {};
  // None: accents are taken off where texts are lower-cased.
  std::optional<bool> strip_accents = {};
  bool split_chinese = true;  // each Chinese character is a word
};

// Of a vocab.txt's text, a token a line, of which [UNK], [CLS] and [SEP] must be some: words of BERT
// (Devlin et al. 2018), cut by WordPiece. Throws DataError.
std::unique_ptr<const Tokenizer> parse_bert_vocabulary(std::string_view text,
                                                       const std::string& name,
                                                       const BertVocabularyOptions& options = {});

// Of the bytes of a .model file. Throws DataError.
std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name);

}  // namespace lockstep
