#pragma once
// Moves the measured times of a run's ops to other hardware: `lockstep plan --replay`.
//
//   there = measured here * predicted there / predicted here
//
// for every op, and likewise for the sums of gradients, the rest of a step and the update
// (timed_run.h). What a prediction gets wrong in both places by the same factor cancels. Measured
// are medians, whose sum is less than a step without its waits: each has a share of the rest. The
// exchange is simulated anew, with the links of the new place.
//
// A GPU's timeline has no single ops: then the ops of a step are moved together.

#include <string>
#include <vector>

#include "launcher/forecast/step_forecast.h"
#include "runtime/base/json.h"

namespace lockstep::forecast {

// A run that was measured.
struct TimedRun {
  const run::PreparedRun* prepared = nullptr;
  Place place;                  // where it ran
  std::vector<MeasuredOp> ops;  // from its timeline; measured_ops()
  double step_s = 0;            // the median of its steps but the first
  double busy_s = 0;            // the same, of a step without its waits
};

// Ops of one kind, or another part of a step; times are those of a step.
struct ReplayedPart {
  std::string name;
  double here_s = 0;  // measured
  Range there_s;

  double ratio() const { return there_s.middle() / here_s; }
};

struct Replay {
  std::string run;  // the path of the timeline
  std::string from;
  double step_s = 0;                // measured
  int64_t ops = 0, matched = 0;     // of the training graph, if their time is known
  double share = 0;                 // of their time, by the matched ones
  bool whole = false;               // the timeline has no ops: they are moved together
  std::vector<ReplayedPart> parts;  // those that take longest there first
  std::vector<KnownTime> times;     // there
};

// Sets the medians of steps. Throws JsonError.
void add_step_times(const Json& timeline, TimedRun& run);

// Throws ConfigError if `there` is another network or has another batch.
Replay replay_of(const TimedRun& timed, const run::PreparedRun& there, const Place& place);

// One line for the screen of the forecast.
void print_replay(const Replay& replay);
// The parts: measured here, ratio, predicted there.
void explain_replay(const Replay& replay);
// Adds the member "replay".
void add_replay(const Replay& replay, Json& json);

}  // namespace lockstep::forecast
