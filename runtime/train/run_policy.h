#pragma once
// What follows a step of a run: an evaluation, a checkpoint, the end. It depends only on the config
// and on what all ranks know alike, so that they make the same decisions.

#include <cstdint>

#include "runtime/checkpoint/run/checkpointer.h"
#include "runtime/config/run_config.h"
#include "runtime/train/evaluation/evaluator.h"
#include "runtime/train/progression.h"

namespace lockstep::train {

class RunPolicy {
 public:
  // `evaluates`: whether the run has evaluation data. Borrows the config.
  RunPolicy(const RunConfig& config, bool evaluates);

  // Where the run is after a step.
  struct Position {
    int64_t step = 0;       // completed
    bool last = false;      // the last one that this process was asked to train
    bool stop = false;      // some rank has been asked to stop
    bool save_due = false;  // a checkpoint is due by time
  };

  // The last step of this process if it trains to `max_steps`; negative: to the end of the run.
  int64_t last_step(int64_t max_steps) const;
  bool evaluates(const Position& position) const;
  // Records whether the evaluation requested by evaluates() is the best so far and, with the
  // schedule PLATEAU, whether the rate is reduced. As in PyTorch's ReduceLROnPlateau with threshold
  // 0, that happens after patience + 1 evaluations in a row without improvement.
  void judge(const Evaluation& evaluation,
             const Position& position,
             Progression& progression) const;
  // Whether evaluations have not improved for as many times as the config allows.
  bool out_of_patience(const Progression& progression) const;

  struct Next {
    std::optional<checkpoint::SaveTo> save = {};  // a checkpoint
    bool hash = false;                            // hash the weights
    bool end = false;                             // this process stops training,
    bool early_stopped = false;                   // because evaluations no longer improve,
    bool preempted = false;  // because it was asked to stop before the last step
  };
  // Call after the evaluation, if there was one, and after judge().
  Next next(const Position& position, bool evaluated, const Progression& progression) const;

 private:
  bool judged(const Position& position) const;

  const RunConfig& config_;
  bool has_evaluation_;
};

}  // namespace lockstep::train
