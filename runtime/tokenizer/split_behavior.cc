#include "runtime/tokenizer/split_behavior.h"

namespace lockstep::tokenizer {

SplitBehavior split_behavior(const JsonNode& node) {
  const std::string name = node.text();
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  node.refuse("Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

void BehaviorSplitter::pass(size_t begin, size_t end) {
  if (begin < end)
    next_.take({piece_.text.substr(begin, end - begin), piece_.at_start && begin == 0});
}

void BehaviorSplitter::take(size_t begin, size_t end, bool is_match) {
  if (begin == end) return;
  bool joins = false;
  switch (behavior_) {
    case SplitBehavior::kRemoved:
      if (!is_match) pass(begin, end);
      return;
    case SplitBehavior::kIsolated: pass(begin, end); return;
    case SplitBehavior::kContiguous: joins = is_match == match_before_; break;
    case SplitBehavior::kMergedWithPrevious: joins = is_match && !match_before_; break;
    case SplitBehavior::kMergedWithNext: joins = !is_match && match_before_; break;
  }
  if (!joins || begin_ == end_) {
    pass(begin_, end_);
    begin_ = begin;
  }
  end_ = end;
  match_before_ = is_match;
}

void BehaviorSplitter::finish() { pass(begin_, end_); }

}  // namespace lockstep::tokenizer
