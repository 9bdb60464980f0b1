#include <algorithm>
#include <vector>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/data/dataset.h"

namespace lockstep {

int32_t Dataset::label(int64_t index) const {
  LOCKSTEP_CHECK(target().dtype == DType::kI32 && target().shape.rank() == 0);
  std::vector<std::byte> sample(input().bytes());
  int32_t label = 0;
  read({.index = index}, sample.data(), reinterpret_cast<std::byte*>(&label));
  return label;
}

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
