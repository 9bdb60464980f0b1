#pragma once
// What a tokenizer makes of one text, or of a pair: special tokens around it, and segments.

#include <algorithm>
#include <cstdint>
#include <vector>

namespace lockstep {

struct TemplatePart {
  static constexpr int kSpecial = -1;

  int text = kSpecial;        // 0: the first text stands here, 1: the second
  uint32_t segment = 0;       // of the part's tokens
  std::vector<uint32_t> ids;  // of special tokens
};

// In the order in which they follow each other; each text stands once.
using TextTemplate = std::vector<TemplatePart>;

// How many special tokens there are.
inline int64_t special_tokens_of(const TextTemplate& parts) {
  int64_t count = 0;
  for (const TemplatePart& part : parts) count += static_cast<int64_t>(part.ids.size());
  return count;
}

// The largest id of its special tokens; 0 where there are none.
inline uint32_t largest_id_of(const TextTemplate& parts) {
  uint32_t largest = 0;
  for (const TemplatePart& part : parts)
    for (const uint32_t id : part.ids) largest = std::max(largest, id);
  return largest;
}

}  // namespace lockstep
