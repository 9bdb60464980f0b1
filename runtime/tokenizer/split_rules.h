#pragma once
// The regular expressions by which byte-level tokenizers split a text into words. Each is
// recognised by its exact text and matched by hand-written code, about thirty times as fast as a
// regex engine.

#include <string>
#include <string_view>

#include "runtime/tokenizer/text_piece.h"

namespace lockstep::tokenizer {

// Passes the matches on. They cover the whole piece, which must be valid UTF-8.
using SplitRule = void (*)(TextPiece piece, PieceSink& next);

// GPT-2's rule, which ByteLevel uses.
void split_as_gpt2(TextPiece piece, PieceSink& next);

// The regular expressions of well-known tokenizers.
std::string_view gpt2_regex();
std::string_view cl100k_regex();
std::string_view llama3_regex();
std::string_view qwen2_regex();
std::string_view o200k_regex();

// The rule for that regular expression; null if it is not supported.
SplitRule split_rule_of(std::string_view regex);

// The names of the expressions, for messages.
std::string known_split_rules();

}  // namespace lockstep::tokenizer
