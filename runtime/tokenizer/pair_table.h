#pragma once
// The merges of a BPE model: which two tokens are merged, and in which order. A hash table with
// open addressing.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::tokenizer {

class PairTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    uint32_t rank = kNoRank;  // lower ranks are merged first
    uint32_t id = 0;          // of the merged token
  };

  explicit PairTable(size_t pairs) {
    size_t slots = 16;
    while (slots < 2 * pairs) slots *= 2;
    slots_.resize(slots);
  }

  // If a pair occurs twice, its last merge counts.
  void add(uint32_t left, uint32_t right, Merge merge) {
    Slot& slot = slots_[slot_of(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }

  Merge find(uint32_t left, uint32_t right) const {
    return slots_[slot_of(key_of(left, right))].merge;
  }

 private:
  static constexpr uint64_t kEmpty = UINT64_MAX;

  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };

  static uint64_t key_of(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << 32 | right;
  }

  // The slot of the key, or the empty slot for it.
  size_t slot_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t index = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (slots_[index].key != key && slots_[index].key != kEmpty) index = (index + 1) & mask;
    return index;
  }

  std::vector<Slot> slots_;
};

}  // namespace lockstep::tokenizer
