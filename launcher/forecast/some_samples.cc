#include "launcher/forecast/some_samples.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep::forecast {

int64_t read_some(const data::Dataset& data,
                  const std::function<bool(const std::vector<std::byte>& target)>& visit) {
  constexpr int64_t kMost = 64;
  std::vector<std::byte> input(data.input().bytes()), target(data.target().bytes());
  const int64_t samples = std::min(kMost, data.samples());
  for (int64_t i = 0; i < samples; ++i) {
    try {
      data.read(
          {.index = i * data.samples() / samples, .augment = true}, input.data(), target.data());
    } catch (const DataError&) {
      return i;
    }
    if (!visit(target)) return i + 1;
  }
  return samples;
}

}  // namespace lockstep::forecast
