#pragma once
// SentencePiece's table of replacements, as tokenizer.json has it: a double-array trie and the
// texts that its values point to.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/normalizer.h"

namespace lockstep {

class Charsmap {
 public:
  // The bytes: the trie's size in bytes (u32, little-endian), the trie, texts that end with a zero.
  // Empty bytes replace nothing. Throws std::invalid_argument where they are not such a table.
  explicit Charsmap(std::string_view bytes);

  struct Replacement {
    size_t bytes = 0;  // of the text; 0: nothing replaces it
    std::string_view text;
    size_t steps = 0;  // bytes that were gone through
  };

  // What replaces the shortest beginning of `text` that the trie has, as Hugging Face's tokenizers
  // do, or the longest one, as SentencePiece does.
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

// The bytes that a Base64 text stands for. Throws std::invalid_argument.
std::string decode_base64(std::string_view text);

// Normalizes grapheme by grapheme, each as a whole where it is shorter than 6 bytes and the table
// has it, else by its characters.
std::unique_ptr<const NormalizerStep> make_charsmap_step(Charsmap charsmap);

}  // namespace lockstep
