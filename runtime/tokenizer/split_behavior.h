#pragma once
// What happens to the matches of a pattern at which a text is split.

#include <cstddef>
#include <cstdint>

#include "runtime/tokenizer/json_node.h"
#include "runtime/tokenizer/text_piece.h"

namespace lockstep::tokenizer {

enum class SplitBehavior : uint8_t {
  kRemoved,             // matches are dropped
  kIsolated,            // each match is a piece
  kMergedWithPrevious,  // a match ends the piece before it
  kMergedWithNext,      // a match begins the piece after it
  kContiguous           // consecutive matches are one piece
};

// Parses the name of a behavior, such as "Removed". Throws DataError for any other name.
SplitBehavior split_behavior(const JsonNode& node);

// Takes matches and the text between them, in order and without gaps, and passes pieces on. If
// matches are consecutive, only the one next to other text is merged with it.
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
  size_t begin_ = 0, end_ = 0;  // pending range; empty: none
  bool match_before_ = false;
};

}  // namespace lockstep::tokenizer
