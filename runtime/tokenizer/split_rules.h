#pragma once
// The regular expressions by which byte-level tokenizers cut a text into words, each known by its
// exact text and matched by hand: some thirty times as fast as an engine.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tokenizer/text_piece.h"

namespace lockstep {

// Passes the matches on: they cover the whole piece, which is valid UTF-8.
using SplitRule = void (*)(TextPiece piece, PieceSink& next);

// GPT-2's, which ByteLevel uses.
void split_as_gpt2(TextPiece piece, PieceSink& next);

// The rule of that regular expression, or null.
SplitRule split_rule_of(std::string_view regex);

// What the expressions are called, for messages.
std::string known_split_rules();

}  // namespace lockstep
