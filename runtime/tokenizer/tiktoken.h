#pragma once
// Files of ranks, as tiktoken reads them: GPT's encodings, Llama 3's original tokenizer.model,
// qwen.tiktoken. A line has a token in base64, a space and its rank, which is its id.

#include <memory>
#include <string>
#include <string_view>

#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::tokenizer {

// Whether a file begins like one of ranks.
bool is_tiktoken(std::string_view bytes);

// Parses such a file. It has neither the rule that splits texts into words nor special tokens: they
// are those of the known encoding that has as many ranks. The ids are those of the package
// `tiktoken` with allowed_special="all"; Llama 3's texts begin with <|begin_of_text|>, as its own
// code and its tokenizer.json have it. Throws DataError, also if no known encoding has that many.
std::unique_ptr<const Tokenizer> parse_tiktoken(std::string_view bytes, const std::string& name);

}  // namespace lockstep::tokenizer
