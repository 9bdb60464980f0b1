#pragma once
// `lockstep plan --advise`: searches the settings that change what a run takes, and prints the
// best.

#include "launcher/forecast/planned_run.h"
#include "runtime/base/json.h"

namespace lockstep::launcher {

// A setting of the search: the fields that differ from the config, as --set has them.
struct Advice {
  std::vector<std::string> set;  // empty: the config as it is
  bool same_bits = true;         // as the config as it is
  std::string gives_up;          // what it costs besides time: "a third more work"
  double step_s = 0;             // in the middle of its range
  double needed_bytes = 0;
  bool fits = false;
};

// All settings that can run and are not worse than another one with fewer changes: those that fit,
// the fastest first, then the others, those that need least memory first.
std::vector<Advice> find_advice(const PlanRequest& request, const PlanPlace& place);

// The three best of those that fit by time (and so by cost and energy), and by memory.
void print_advice(const PlanRequest& request,
                  const PlanPlace& place,
                  const std::vector<Advice>& all,
                  Json& json);

}  // namespace lockstep::launcher
