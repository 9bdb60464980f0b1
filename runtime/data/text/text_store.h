#pragma once
// Tokenised texts in memory, with two or four bytes per token.

#include <cstdint>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/data/text/text_encoding.h"

namespace lockstep::data {

class TextStore {
 public:
  // `parts`: the template of all texts. Ids must be below `id_limit`.
  TextStore(tokenizer::TextTemplate parts, uint32_t id_limit);

  void add(const EncodedText& text);
  void add_again(int64_t index);  // adds a copy of a text
  void shrink();                  // frees unused memory

  int64_t count() const { return static_cast<int64_t>(end_.size()); }
  // The offset of a text's tokens among those of all texts.
  int64_t begin(int64_t index) const {
    return index == 0 ? 0 : end_[static_cast<size_t>(index) - 1];
  }
  int64_t length(int64_t index) const { return end_[static_cast<size_t>(index)] - begin(index); }
  // Writes a sample (4, T) i32 as in text_samples.h. `context`: T.
  void read(int64_t index, int64_t context, int32_t* rows) const;

  int64_t resident_bytes() const;
  void add_to(Checksum* checksum) const;

 private:
  uint32_t id(int64_t at) const {
    const auto i = static_cast<size_t>(at);
    return narrow_ ? narrow_ids_[i] : wide_ids_[i];
  }

  tokenizer::TextTemplate parts_;
  bool narrow_, pairs_;
  std::vector<uint16_t> narrow_ids_;   // all tokens if narrow_, otherwise empty
  std::vector<uint32_t> wide_ids_;     // all tokens if not narrow_, otherwise empty
  std::vector<int64_t> end_;           // (texts) offset after the text's last token
  std::vector<int32_t> first_length_;  // (texts), only if they are pairs
};

}  // namespace lockstep::data
