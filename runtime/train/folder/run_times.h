#pragma once
// How a run's time is spent on each rank; scaling reports use it.

#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/metrics/step_record.h"

namespace lockstep::train {

// Averages over one rank's steps.
struct RankTimes {
  int rank = 0;
  std::string host = {};
  int64_t steps = 0;  // number of steps averaged
  double step_ms = 0;
  double compute_ms = 0;
  double data_wait_ms = 0;
  double comm_exposed_ms = 0;  // waits for other ranks
  double straggler_ms = 0;     // the part of these waits caused by slower ranks
  double optimizer_ms = 0;
};

// The averages, with their names in the result's JSON, and what they are averages of.
struct RankMean {
  const char* name;
  double RankTimes::*value;
  double metrics::StepRecord::*of_step;
};
inline constexpr RankMean kRankMeans[] = {
    {"step_ms", &RankTimes::step_ms, &metrics::StepRecord::step_ms},
    {"compute_ms", &RankTimes::compute_ms, &metrics::StepRecord::compute_ms},
    {"data_wait_ms", &RankTimes::data_wait_ms, &metrics::StepRecord::data_wait_ms},
    {"comm_exposed_ms", &RankTimes::comm_exposed_ms, &metrics::StepRecord::comm_exposed_ms},
    {"straggler_ms", &RankTimes::straggler_ms, &metrics::StepRecord::straggler_ms},
    {"optimizer_ms", &RankTimes::optimizer_ms, &metrics::StepRecord::optimizer_ms}};

// Adds up a rank's steps, except the first ones, in which caches and clocks warm up.
class RunTimes {
 public:
  // `steps`: the number of steps that will follow.
  explicit RunTimes(int64_t steps);
  void add(const metrics::StepRecord& record);
  double mean_step_ms() const;  // of this rank; 0: no step has been added
  // Returns the averages of every rank, by rank; `hosts`: by rank. Collective.
  std::vector<RankTimes> gather(collectives::Communicator& communicator,
                                const std::vector<std::string>& hosts) const;

 private:
  int64_t to_skip_;
  RankTimes sum_;
};

}  // namespace lockstep::train
