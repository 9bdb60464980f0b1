#pragma once
// Pieces of a text on their way from the whole to words.

#include <string_view>

namespace lockstep {

// Valid UTF-8, but after the last step of a byte-level tokenizer, where a piece is any bytes.
struct TextPiece {
  std::string_view text;
  bool at_start = false;  // it begins where the whole text begins
};

// What takes pieces, in the order of the text.
class PieceSink {
 public:
  virtual void take(TextPiece piece) = 0;

 protected:
  ~PieceSink() = default;
};

}  // namespace lockstep
