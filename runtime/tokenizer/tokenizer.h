#pragma once
// Text to token ids and back. Tokenizers come from Hugging Face's tokenizer.json or SentencePiece's
// .model, and give the ids that the `tokenizers` and `sentencepiece` packages give.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
};

// A tokenizer.json, a .model of SentencePiece, or a folder with tokenizer.json or else
// tokenizer.model. Throws DataError that names the file, and what of it is not known.
std::unique_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path);

// Of a tokenizer.json's text; `name` is the file's for messages. Throws DataError.
std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& name);

// Of the bytes of a .model file. Throws DataError.
std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name);

}  // namespace lockstep
