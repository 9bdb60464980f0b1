#pragma once
// Builds the tokens of a sample from a text or a pair of texts: adds special tokens and truncates,
// as Hugging Face's tokenizers do.

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/config/model_traits.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::data {

// How many tokens of two texts, with `first` and `second` tokens, are kept if there is room for
// `room`. The longer text loses tokens at its end until both fit or are equally long. If an odd
// number is shared, the text that was longer gets the larger half, or the second if they were
// equally long. The package `tokenizers` calls this longest_first.
std::pair<int64_t, int64_t> longest_first(int64_t first, int64_t second, int64_t room);

// The tokens of a sample.
struct EncodedText {
  std::vector<uint32_t> ids;  // with special tokens
  int32_t first_length = 0;   // number of tokens of the first text
  bool cut = false;           // texts were truncated
};

// How a tokenizer's template and the model's context turn texts into samples; the same for all
// texts of a data set.
class TextForm {
 public:
  // Borrows `tokenizer`, which the config field `field` names. Throws ConfigError if the tokenizer
  // has no template for pairs although `pairs` is set, if the template has more segments than the
  // model, if special tokens fill the context, or if the tokenizer has more tokens than the model's
  // vocabulary.
  TextForm(const tokenizer::Tokenizer& tokenizer,
           bool pairs,
           const config::ModelTraits& model,
           const std::string& field);

  const tokenizer::Tokenizer& tokenizer() const { return *tokenizer_; }
  const tokenizer::TextTemplate& parts() const { return parts_; }
  int64_t room() const { return room_; }  // max number of text tokens in a sample

  // Builds a sample from the tokens of one or two texts, truncated to fit. `second` is empty
  // without pairs.
  void assemble(std::span<const uint32_t> first,
                std::span<const uint32_t> second,
                EncodedText* encoded) const;

 private:
  const tokenizer::Tokenizer* tokenizer_;
  bool pairs_;
  tokenizer::TextTemplate parts_;
  int64_t room_;
};

}  // namespace lockstep::data
