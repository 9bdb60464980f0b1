#pragma once
// How long reading and decoding a step's samples takes: measured here, on some of the run's own.

#include "launcher/forecast/range.h"
#include "runtime/run/prepared_run.h"

namespace lockstep::forecast {

struct Loading {
  Range seconds;    // of the loader of the rank with the most lanes
  int threads = 1;  // that read
};

// For a rank with `threads` threads to compute. No time if samples take no decoding, or are not
// here. Takes some 20 ms.
Loading loading_of(const run::PreparedRun& prepared, int threads);

}  // namespace lockstep::forecast
