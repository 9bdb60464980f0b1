#pragma once
// Reads some samples of a run's data, for what a forecast must know about them.

#include <functional>

#include "runtime/data/dataset.h"

namespace lockstep::forecast {

// Reads up to 64 samples, evenly spaced, as training does, and passes the target of each to
// `visit`, until that returns false. Returns how many it has read. A record that cannot be read
// ends it: training will report that.
int64_t read_some(const data::Dataset& data,
                  const std::function<bool(const std::vector<std::byte>& target)>& visit);

}  // namespace lockstep::forecast
