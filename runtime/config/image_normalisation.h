#pragma once
// What images are normalised with before a model sees them.

#include <cstddef>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

// A channel of a pixel becomes (byte / 255 - mean) / std.
struct ImageNormalisation {
  std::vector<float> mean, std;  // (channels), or one for all of them

  friend bool operator==(const ImageNormalisation&, const ImageNormalisation&) = default;
};

// Of images of so many channels, one value for each: what the config says, or the defaults of
// data.image. Throws ConfigError where it has another number of values.
ImageNormalisation normalisation_of(const DataConfig& data, size_t channels);

}  // namespace lockstep
