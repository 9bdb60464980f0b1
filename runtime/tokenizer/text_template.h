#pragma once
// The form of one encoded text, or of a pair: special tokens and segments.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep::tokenizer {

struct TemplatePart {
  static constexpr int kSpecial = -1;

  int text = kSpecial;        // 0: the first text, 1: the second
  uint32_t segment = 0;       // of the part's tokens
  std::vector<uint32_t> ids;  // of the special tokens
};

// The parts in order. Each text occurs once.
using TextTemplate = std::vector<TemplatePart>;

// The number of special tokens.
inline int64_t special_tokens_of(const TextTemplate& parts) {
  int64_t count = 0;
  for (const TemplatePart& part : parts) count += static_cast<int64_t>(part.ids.size());
  return count;
}

// The largest id of the special tokens; 0 if there are none.
inline uint32_t largest_id_of(const TextTemplate& parts) {
  uint32_t largest = 0;
  for (const TemplatePart& part : parts)
    for (const uint32_t id : part.ids) largest = std::max(largest, id);
  return largest;
}

}  // namespace lockstep::tokenizer
