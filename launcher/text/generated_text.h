#pragma once
// The input and output of `lockstep generate`: texts, or token ids.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/generate/generation.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::launcher {

// Converts between texts and tokens.
struct TokenTexts {
  std::unique_ptr<const tokenizer::Tokenizer> tokenizer;  // null: bytes, or no texts at all
  bool bytes = false;

  bool has_texts() const { return tokenizer != nullptr || bytes; }
  // `with_special`: adds the tokens that the tokenizer puts around each text.
  std::vector<int32_t> tokens_of(const std::string& text, bool with_special = true) const;
  std::string text_of(std::span<const int32_t> tokens) const;
};

// Prints a sequence while it grows.
class GenerationPrinter {
 public:
  // `texts` is borrowed. Text that may become one of the stop texts is held back. `prompts`: a
  // sequence is printed with its prompt.
  GenerationPrinter(const TokenTexts& texts,
                    const std::vector<std::string>& stop_texts,
                    bool prompts);

  void begin(const generate::Generation& sequence);
  void go_on(const generate::Generation& sequence);  // prints what is new and final

 private:
  // How many bytes of the text will not change any more.
  size_t certain(const std::string& text) const;

  const TokenTexts& texts_;
  bool prompts_;
  size_t held_ = 0, printed_ = 0;  // bytes
};

}  // namespace lockstep::launcher
