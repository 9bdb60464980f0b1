#pragma once
// The merges of a BPE model: which two tokens become one, and how early.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep {

class PairTable {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  struct Merge {
    uint32_t rank = kNoRank;  // the lower the earlier
    uint32_t id = 0;          // of the token that the two become
  };

  explicit PairTable(size_t pairs) {
    size_t slots = 16;
    while (slots < 2 * pairs) slots *= 2;
    slots_.resize(slots);
  }

  // Of two merges of one pair the last one counts.
  void add(uint32_t left, uint32_t right, Merge merge) {
    Slot& slot = slots_[place_of(key_of(left, right))];
    slot = {key_of(left, right), merge};
  }

  Merge find(uint32_t left, uint32_t right) const {
    return slots_[place_of(key_of(left, right))].merge;
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

  // Of the key, or of the empty slot where it would stand.
  size_t place_of(uint64_t key) const {
    const size_t mask = slots_.size() - 1;
    size_t place = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (slots_[place].key != key && slots_[place].key != kEmpty) place = (place + 1) & mask;
    return place;
  }

  std::vector<Slot> slots_;
};

}  // namespace lockstep
