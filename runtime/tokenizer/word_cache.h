#pragma once
// Caches the ids of words. Used by one thread. Has a fixed size: a word replaces the one in its
// slot.

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxBytes = 24;  // max length of a word
  static constexpr size_t kMaxIds = 8;

  WordCache() : slots_(kSlots) {}

  // A word in the form that lookups use.
  struct Key {
    uint64_t parts[3];  // its bytes, padded with zeros
    uint32_t bytes;
    uint32_t hash;
  };

  // `word` has 1 to kMaxBytes bytes. `readable_end`: memory up to there may be read.
  static Key key_of(std::string_view word, const char* readable_end) {
    Key key{{0, 0, 0}, static_cast<uint32_t>(word.size()), 0};
    if (readable_end - word.data() >= static_cast<ptrdiff_t>(kMaxBytes)) {
      std::memcpy(key.parts, word.data(), kMaxBytes);
      for (size_t part = 0; part < 3; ++part) {
        const size_t before = 8 * part;
        const size_t kept = word.size() > before ? word.size() - before : 0;
        if (kept < 8) key.parts[part] &= (uint64_t{1} << (8 * kept)) - 1;
      }
    } else {
      std::memcpy(key.parts, word.data(), word.size());
    }
    uint64_t mixed = key.parts[0] * 0x9E3779B97F4A7C15u + key.bytes;
    mixed = (mixed ^ mixed >> 29 ^ key.parts[1]) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ mixed >> 32 ^ key.parts[2]) * 0x94D049BB133111EBu;
    key.hash = static_cast<uint32_t>(mixed >> 40);
    return key;
  }

  // The ids of a word; empty if the word is not in the cache.
  std::span<const uint32_t> find(const Key& key) const {
    const Slot& slot = slots_[key.hash % kSlots];
    const bool same = slot.parts[0] == key.parts[0] && slot.parts[1] == key.parts[1] &&
                      slot.parts[2] == key.parts[2] && slot.bytes == key.bytes;
    return {slot.ids, same ? slot.count : size_t{0}};
  }

  // Stores 1 to kMaxIds ids.
  void put(const Key& key, std::span<const uint32_t> ids) {
    Slot& slot = slots_[key.hash % kSlots];
    std::memcpy(slot.parts, key.parts, sizeof(slot.parts));
    slot.bytes = static_cast<uint8_t>(key.bytes);
    slot.count = static_cast<uint8_t>(ids.size());
    std::memcpy(slot.ids, ids.data(), ids.size_bytes());
  }

 private:
  static constexpr size_t kSlots = size_t{1} << 15;

  // Fills one cache line of the processor.
  struct alignas(64) Slot {
    uint64_t parts[3] = {};
    uint32_t ids[kMaxIds] = {};
    uint8_t bytes = 0;  // length of the word; 0: empty slot
    uint8_t count = 0;
  };
  static_assert(sizeof(Slot) == 64);

  std::vector<Slot> slots_;
};

}  // namespace lockstep::tokenizer
