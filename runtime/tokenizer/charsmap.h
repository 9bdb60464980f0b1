#pragma once
// SentencePiece's table of replacements in the form that tokenizer.json has: a double-array trie
// and the replacement texts that its values refer to.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/normalizer.h"

namespace lockstep::tokenizer {

class Charsmap {
 public:
  // `bytes`: the trie's size in bytes (u32, little-endian), the trie, and zero-terminated texts.
  // Empty bytes replace nothing. Throws std::invalid_argument if `bytes` is not such a table.
  explicit Charsmap(std::string_view bytes);

  struct Replacement {
    size_t bytes = 0;  // length of the replaced text; 0: nothing is replaced
    std::string_view text;
    size_t steps = 0;  // bytes visited
  };

  // The replacement of the shortest prefix of `text` in the trie, as in Hugging Face's tokenizers,
  // or of the longest, as in SentencePiece.
  std::optional<std::string_view> replacement(std::string_view text) const {
    const Replacement found = find(text, /*longest=*/false);
    return found.bytes > 0 ? std::optional(found.text) : std::nullopt;
  }
  Replacement longest_replacement(std::string_view text) const { return find(text, true); }

 private:
  Replacement find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

// Decodes Base64. Throws std::invalid_argument.
std::string decode_base64(std::string_view text);

// Normalizes each grapheme as a unit if it is shorter than 6 bytes and in the table; otherwise
// character by character.
std::unique_ptr<const NormalizerStep> make_charsmap_step(Charsmap charsmap);

}  // namespace lockstep::tokenizer
