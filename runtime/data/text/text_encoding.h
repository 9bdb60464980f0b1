#pragma once
// From texts, or pairs of texts, to the tokens of samples: special tokens around them, and what is too
// long is cut, as Hugging Face's tokenizers do it.

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep {

// How many tokens of each of two texts, of `first` and `second` tokens, are kept where there is room
// for `room`: of the longer one the last ones go until both fit or are equally long; where an odd
// number is shared, the text that was longer gets the larger half, of equals the second. That is what
// the package `tokenizers` calls longest_first.
std::pair<int64_t, int64_t> longest_first(int64_t first, int64_t second, int64_t room);

// The tokens of a sample, special ones among them, and how many are of the first text.
struct EncodedText {
  std::vector<uint32_t> ids;
  int32_t first_length = 0;
  bool cut = false;  // texts were too long
};

// What is the same for all texts of a data set.
class TextForm {
 public:
  // `field` of the config names the tokenizer, which is borrowed. Throws ConfigError where the
  // tokenizer has no form for pairs, or one with more segments than the model, where its special tokens
  // alone fill the context, and where its tokens are more than the model's vocabulary.
  TextForm(const Tokenizer& tokenizer,
           bool pairs,
           const ModelTraits& model,
           const std::string& field);

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const TextTemplate& parts() const { return parts_; }
  int64_t room() const { return room_; }  // tokens of texts in a sample

  // Puts a sample together of the tokens of one text or two (else none), cut to fit.
  void assemble(std::span<const uint32_t> first,
                std::span<const uint32_t> second,
                EncodedText* encoded) const;

 private:
  const Tokenizer* tokenizer_;
  bool pairs_;
  TextTemplate parts_;
  int64_t room_;
};

}  // namespace lockstep
