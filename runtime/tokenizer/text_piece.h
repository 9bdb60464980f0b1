#pragma once
// Pieces of a text on their way through the pre-tokenizer's steps.

#include <string_view>

namespace lockstep::tokenizer {

// Valid UTF-8, except after the last step of a byte-level tokenizer: then a piece may be any bytes.
struct TextPiece {
  std::string_view text;
  bool at_start = false;  // whether it begins at the start of the text
};

// Receives pieces in the order of the text.
class PieceSink {
 public:
  virtual void take(TextPiece piece) = 0;

 protected:
  ~PieceSink() = default;
};

}  // namespace lockstep::tokenizer
