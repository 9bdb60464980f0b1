#pragma once
// What a tokenizer's file may make of one text, in memory and in time. Files come from anywhere:
// forty rules that double a letter would make 2^40 letters of each. So every stage that grows a text
// asks check() before it writes, and every stage counts what it goes through with step().
//
// No tokenizer in use comes near: NFKC makes up to 11 times a text's bytes of it, marks before words
// and byte-level characters up to 4 times; a stage goes through each byte a few times, and a model
// tries up to some 50 tokens at each.

#include <cstddef>
#include <string>

#include "runtime/tokenizer/json_place.h"

namespace lockstep {

class GrowthLimit {
 public:
  static constexpr size_t kTimes = 64;            // bytes made of each byte
  static constexpr size_t kMoreBytes = 1 << 20;   // and of each text
  static constexpr size_t kSteps = 1024;          // for each byte
  static constexpr size_t kMoreSteps = 16 << 20;  // and for each text
  static constexpr size_t kBytesOfId = 16;        // that an id counts as when ids become text

  static GrowthLimit of_text(size_t bytes) { return {bytes, 1, "byte"}; }
  static GrowthLimit of_ids(size_t ids) { return {ids, kBytesOfId, "id"}; }

  // What errors name from here on, as "FILE: normalizer.normalizers[3] (Replace)". It must live as
  // long as the limit.
  void enter(const std::string& stage) { stage_ = &stage; }

  // Throws DataError if a text of so many bytes is too long.
  void check(size_t bytes) const {
    if (bytes > most_bytes_) [[unlikely]]
      fail_growth();
  }
  // Throws DataError if so many steps, with all before, are too many.
  void step(size_t count) {
    steps_ += count;
    if (steps_ > most_steps_) [[unlikely]]
      fail_steps();
  }

 private:
  GrowthLimit(size_t count, size_t bytes_each, const char* unit)
      : count_(count),
        bytes_each_(bytes_each),
        unit_(unit),
        most_bytes_(kTimes * count * bytes_each + kMoreBytes),
        most_steps_(kSteps * count * bytes_each + kMoreSteps) {}

  [[noreturn]] void fail_growth() const;
  [[noreturn]] void fail_steps() const;

  size_t count_, bytes_each_;  // what the text was: so many units
  const char* unit_;
  size_t most_bytes_, most_steps_, steps_ = 0;
  const std::string* stage_ = nullptr;
};

// Throws if so many steps are too many for a normalizer, a pre-tokenizer or a decoder: a
// text goes through all of them, and pieces of it through steps within each other.
void check_stage_count(size_t stages, const JsonPlace& last);

}  // namespace lockstep
