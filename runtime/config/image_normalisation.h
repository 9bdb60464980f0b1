#pragma once
// How images are normalised before a model sees them.

#include <cstddef>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::config {

// Each channel of a pixel becomes (byte / 255 - mean) / std.
struct ImageNormalisation {
  std::vector<float> mean, std;  // (channels), or one value for all of them

  friend bool operator==(const ImageNormalisation&, const ImageNormalisation&) = default;
};

// The normalisation for images of this many channels, one value per channel: the config's or, if
// none is given, the defaults of data.image. Throws ConfigError if the config has another number of
// values.
ImageNormalisation normalisation_of(const DataConfig& data, size_t channels);

}  // namespace lockstep::config
