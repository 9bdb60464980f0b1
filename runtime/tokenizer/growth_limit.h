#pragma once
// Bounds the memory and time that a tokenizer's file may cost for one text. Files are untrusted:
// forty rules that double a letter would turn each into 2^40 letters. So every stage that lengthens
// a text calls check() before it writes, and every stage counts its work with step().
//
// No real tokenizer comes near the limits. NFKC expands a text at most 11 times, and markers before
// words and byte-level characters at most 4 times. A stage visits each byte a few times, and a
// model tries up to some 50 tokens at each byte.

#include <cstddef>
#include <string>

#include "runtime/tokenizer/json_node.h"

namespace lockstep::tokenizer {

class GrowthLimit {
 public:
  static constexpr size_t kTimes = 64;            // output bytes per input byte
  static constexpr size_t kMoreBytes = 1 << 20;   // in addition, per text
  static constexpr size_t kSteps = 1024;          // steps per input byte
  static constexpr size_t kMoreSteps = 16 << 20;  // in addition, per text
  static constexpr size_t kBytesOfId = 16;        // bytes that an id counts as when ids become text

  static GrowthLimit of_text(size_t bytes) { return {bytes, 1, "byte"}; }
  static GrowthLimit of_ids(size_t ids) { return {ids, kBytesOfId, "id"}; }

  // Sets the stage that errors name from now on, such as "FILE: normalizer.normalizers[3]
  // (Replace)". The string must outlive the limit.
  void enter(const std::string& stage) { stage_ = &stage; }

  // Throws DataError if a text of this many bytes is too long.
  void check(size_t bytes) const {
    if (bytes > max_bytes_) [[unlikely]]
      fail_growth();
  }
  // Throws DataError if the sum of all steps so far is too large.
  void step(size_t count) {
    steps_ += count;
    if (steps_ > max_steps_) [[unlikely]]
      fail_steps();
  }

 private:
  GrowthLimit(size_t count, size_t bytes_each, const char* unit)
      : count_(count),
        bytes_each_(bytes_each),
        unit_(unit),
        max_bytes_(kTimes * count * bytes_each + kMoreBytes),
        max_steps_(kSteps * count * bytes_each + kMoreSteps) {}

  [[noreturn]] void fail_growth() const;
  [[noreturn]] void fail_steps() const;

  size_t count_, bytes_each_;  // size of the input, in units
  const char* unit_;
  size_t max_bytes_, max_steps_, steps_ = 0;
  const std::string* stage_ = nullptr;
};

// Throws DataError if a normalizer, pre-tokenizer or decoder has too many stages: a text passes
// through all of them, and pieces of it through nested steps.
void require_stage_count(size_t stages, const JsonNode& last);

}  // namespace lockstep::tokenizer
