#include <algorithm>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/data/dataset.h"

namespace lockstep {

uint64_t Dataset::content() const {
  const size_t input_bytes = input().bytes(), sample_bytes = input_bytes + target().bytes();
  const auto bytes = samples() * static_cast<int64_t>(sample_bytes);
  const int64_t stride = std::max<int64_t>(1, bytes / kMostHashedBytes);
  std::vector<std::byte> sample(sample_bytes);
  Checksum checksum;
  const int64_t count = samples();
  checksum.update(&count, sizeof(count));
  for (int64_t index = 0; index < count; index += stride) {
    read({.index = index}, sample.data(), sample.data() + input_bytes);
    checksum.update(sample.data(), sample.size());
  }
  return checksum.value();
}

}  // namespace lockstep
