#include "runtime/tokenizer/byte_trie.h"

#include <algorithm>

namespace lockstep::tokenizer {

ByteTrie::ByteTrie(std::vector<Entry> entries) : nodes_(1) {
  std::erase_if(entries, [](const Entry& entry) { return entry.first.empty(); });
  std::ranges::stable_sort(entries, {}, &Entry::first);
  // Builds the trie level by level: each range has the entries whose first `depth` bytes lead to
  // its node.
  struct Range {
    uint32_t node;
    size_t begin, end;
  };
  std::vector<Range> level{{0, 0, entries.size()}};
  for (size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> below;
    for (const auto& [node, begin, end] : level) {
      size_t i = begin;
      for (; i < end && entries[i].first.size() == depth; ++i) {
        nodes_[node].has_value = true;
        nodes_[node].value = entries[i].second;
      }
      nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
      while (i < end) {
        const char byte = entries[i].first[depth];
        const size_t first = i;
        while (i < end && entries[i].first[depth] == byte) ++i;
        below.push_back({static_cast<uint32_t>(nodes_.size()), first, i});
        nodes_.emplace_back().byte = static_cast<uint8_t>(byte);
        ++nodes_[node].children;
      }
    }
    level = std::move(below);
  }
  for (uint32_t i = nodes_[0].first_child; i < nodes_[0].first_child + nodes_[0].children; ++i)
    roots_[nodes_[i].byte] = i;
}

}  // namespace lockstep::tokenizer
