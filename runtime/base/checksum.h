#pragma once
// Checksums of the tensors and files of a checkpoint, and of texts that ranks compare.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/text.h"

namespace lockstep {

// XXH3-64 (seed 0) of data that is passed in parts.
class Checksum {
 public:
  Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  ~Checksum();
  void update(const void* data, size_t bytes);
  uint64_t value() const;

 private:
  void* state_;
};

uint64_t checksum_of(const void* data, size_t bytes);
// The checksum of the text's bytes.
uint64_t hash_text(std::string_view text);

// 16 lower-case hexadecimal digits, as `xxhsum -H3` prints them, and back. from_hex returns false
// if the text is anything else.
std::string to_hex(uint64_t value);
bool from_hex(std::string_view text, uint64_t& value);

}  // namespace lockstep
