#pragma once
// What `lockstep watch` shows of a run, as lines of text.

#include <optional>
#include <string>
#include <vector>

#include "launcher/run/run_history.h"
#include "runtime/base/flight_reader.h"

namespace lockstep::watch {

struct ScreenOptions {
  int columns = 80;
  int rows = 0;         // lines at most; 0: as many as there are
  bool utf8 = true;     // Braille and blocks; otherwise ASCII
  bool colors = false;  // escape sequences, which take no column
  double now = 0;       // seconds since 1970
};

// The lines, each of at most `columns` characters. The loss's curve takes the rows that are left.
// If there are too few rows, it goes first, and then the last lines. `rank_0`: its flight record;
// null if there is none.
std::vector<std::string> screen_of(const launcher::RunHistory& run,
                                   const FlightMoment* rank_0,
                                   const ScreenOptions& options);

}  // namespace lockstep::watch
