#pragma once
// Where the time of a run went, per rank: what scaling reports split.

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/metrics/step_record.h"

namespace lockstep {

// Where the time of one rank's steps went, on average.
struct RankTimes {
  int rank = 0;
  std::string host;
  int64_t steps = 0;  // that these are the means of
  double step_ms = 0;
  double compute_ms = 0;
  double data_wait_ms = 0;
  double comm_exposed_ms = 0;  // waits for other ranks,
  double straggler_ms = 0;     // and what of them slower ones explain
  double optimizer_ms = 0;
};

// Those that are means, by the names of the result's JSON.
struct RankMean {
  const char* name;
  double RankTimes::*value;
};
inline constexpr RankMean kRankMeans[] = {{"step_ms", &RankTimes::step_ms},
                                          {"compute_ms", &RankTimes::compute_ms},
                                          {"data_wait_ms", &RankTimes::data_wait_ms},
                                          {"comm_exposed_ms", &RankTimes::comm_exposed_ms},
                                          {"straggler_ms", &RankTimes::straggler_ms},
                                          {"optimizer_ms", &RankTimes::optimizer_ms}};

// Adds up a rank's steps, without the first ones, in which caches and clocks warm up.
class RunTimes {
 public:
  // `steps` that are about to follow.
  explicit RunTimes(int64_t steps);
  void add(const StepRecord& record);
  // Of every rank, by rank, as `hosts`. All ranks together.
  std::vector<RankTimes> gather(Communicator& communicator,
                                const std::vector<std::string>& hosts) const;

 private:
  int64_t to_skip_;
  RankTimes sum_;
};

}  // namespace lockstep
