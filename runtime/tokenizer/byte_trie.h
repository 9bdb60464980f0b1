#pragma once
// Finds the strings of a set that a text begins with.

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/tokenizer/growth_limit.h"

namespace lockstep::tokenizer {

class ByteTrie {
 public:
  // A string and its value. If a string occurs several times, its last value counts. Empty strings
  // are ignored.
  using Entry = std::pair<std::string_view, uint32_t>;

  struct Match {
    size_t bytes = 0;  // 0: none
    uint32_t value = 0;
  };

  ByteTrie() : ByteTrie(std::vector<Entry>{}) {}
  explicit ByteTrie(std::vector<Entry> entries);

  bool empty() const { return nodes_.size() == 1; }
  bool begins_some(uint8_t first) const { return roots_[first] != 0; }

  // Calls found(bytes, value) for each string that the text begins with, the shortest first. Every
  // visited byte counts as a step, matched or not, because a long string may fail to match only at
  // its last byte.
  template <typename Found>
  void for_each_prefix(std::string_view text, GrowthLimit& limit, Found&& found) const {
    uint32_t node = 0;
    size_t i = 0;
    for (; i < text.size(); ++i) {
      node = child(node, static_cast<uint8_t>(text[i]));
      if (node == 0) break;
      if (nodes_[node].has_value) found(i + 1, nodes_[node].value);
    }
    limit.step(i + 1);
  }

  Match longest_prefix(std::string_view text, GrowthLimit& limit) const {
    Match longest;
    for_each_prefix(text, limit, [&longest](size_t bytes, uint32_t value) {
      longest = {bytes, value};
    });
    return longest;
  }

 private:
  // The children of a node are consecutive, in the order of their bytes.
  struct Node {
    uint32_t first_child = 0;
    uint32_t value = 0;
    uint16_t children = 0;
    bool has_value = false;
    uint8_t byte = 0;  // label of the edge to the node
  };

  // The child of a node along `byte`; 0 if there is none.
  uint32_t child(uint32_t node, uint8_t byte) const {
    if (node == 0) return roots_[byte];
    const Node& parent = nodes_[node];
    for (uint32_t i = parent.first_child; i < parent.first_child + parent.children; ++i)
      if (nodes_[i].byte >= byte) return nodes_[i].byte == byte ? i : 0;
    return 0;
  }

  std::vector<Node> nodes_;  // the root is the first one
  uint32_t roots_[256] = {};
};

}  // namespace lockstep::tokenizer
