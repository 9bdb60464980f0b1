#pragma once
// What becomes of the matches of a pattern when a text is split at them.

#include <cstddef>
#include <cstdint>

#include "runtime/tokenizer/json_place.h"
#include "runtime/tokenizer/text_piece.h"

namespace lockstep {

enum class SplitBehavior : uint8_t {
  kRemoved,             // a match is left out
  kIsolated,            // each match is a piece
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece after it
  kContiguous           // matches that follow each other are one piece
};

// Throws DataError.
SplitBehavior split_behavior(const JsonPlace& place);

// Takes matches and what lies between them, in the order of the text and without gaps, and passes
// pieces on. Of matches that follow each other only the one next to other text is merged with it.
class BehaviorSplitter {
 public:
  BehaviorSplitter(TextPiece piece, SplitBehavior behavior, PieceSink& next)
      : piece_(piece), behavior_(behavior), next_(next) {}

  void take(size_t begin, size_t end, bool is_match);
  void finish();

 private:
  void pass(size_t begin, size_t end);

  TextPiece piece_;
  SplitBehavior behavior_;
  PieceSink& next_;
  size_t begin_ = 0, end_ = 0;  // held back, and empty where nothing is
  bool match_before_ = false;
};

}  // namespace lockstep
