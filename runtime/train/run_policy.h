#pragma once
// What follows a step of a run: an evaluation, a checkpoint, the end. It depends on the config and
// on what all ranks know alike, so that they come to the same decisions.

#include <cstdint>

#include "runtime/config/run_config.h"
#include "runtime/train/evaluation/evaluator.h"
#include "runtime/train/progression.h"

namespace lockstep {

class RunPolicy {
 public:
  // `evaluates`: whether the run has evaluation data. Borrows the config.
  RunPolicy(const RunConfig& config, bool evaluates);

  // Where the run is after a step.
  struct Place {
    int64_t step = 0;       // completed
    bool last = false;      // as far as this process was to train
    bool stop = false;      // some rank has been asked to stop
    bool save_due = false;  // the last checkpoint is long ago
  };

  // The step to end with, where this process is to train to `max_steps`; negative: to the end.
  int64_t last_step(int64_t max_steps) const;
  bool evaluates(const Place& place) const;
  // Notes whether the evaluation that evaluates() asked for is the best so far, and with the schedule
  // PLATEAU whether the rate falls: as PyTorch's ReduceLROnPlateau with a threshold of 0, after
  // patience + 1 evaluations in a row that are not better.
  void judge(const Evaluation& evaluation, const Place& place, Progression& progression) const;
  // Whether evaluations have not become better for as many times as the config allows.
  bool out_of_patience(const Progression& progression) const;

  struct Next {
    bool save = false;
    bool copy = false;           // to the hosts' own disks
    bool hash = false;           // the weights
    bool end = false;            // this process trains no further,
    bool early_stopped = false;  // because it is out of patience,
    bool preempted = false;      // because it was asked to stop before the end
  };
  // After the evaluation, if there was one, and its judgement.
  Next next(const Place& place, bool evaluated, const Progression& progression) const;

 private:
  bool judged(const Place& place) const;

  const RunConfig& config_;
  bool has_evaluation_;
};

}  // namespace lockstep
