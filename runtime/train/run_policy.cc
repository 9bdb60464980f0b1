#include "runtime/train/run_policy.h"

#include <algorithm>

namespace lockstep::train {
namespace {

bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

}  // namespace

RunPolicy::RunPolicy(const RunConfig& config, bool evaluates)
    : config_(config), has_evaluation_(evaluates) {}

int64_t RunPolicy::last_step(int64_t max_steps) const {
  return max_steps >= 0 ? std::min(max_steps, config_.train.steps) : config_.train.steps;
}

// An evaluation that runs only because this process ends here changes nothing: a resumed run
// continues as if it had not been interrupted.
bool RunPolicy::judged(const Position& position) const {
  return due(config_.eval.every, position.step) || position.step == config_.train.steps;
}

bool RunPolicy::evaluates(const Position& position) const {
  return has_evaluation_ && (judged(position) || (position.last && !position.stop));
}

void RunPolicy::judge(const Evaluation& evaluation,
                      const Position& position,
                      Progression& progression) const {
  if (!judged(position)) return;
  const double metric = evaluation.value_of(config_.eval.best);
  const bool smaller = config::smaller_is_better(config_.eval.best);
  const auto& best = progression.best_metric;
  const bool better = !best || (smaller ? metric < *best : metric > *best);
  if (better) {
    progression.best_metric = metric;
    progression.best_step = position.step;
    progression.evals_since_best = 0;
  } else {
    ++progression.evals_since_best;
  }
  const ScheduleConfig& schedule = config_.schedule;
  // A longer run would not have the evaluation at the end of this run, so it does not count here.
  if (schedule.kind != ScheduleConfig::Kind::kPlateau || !due(config_.eval.every, position.step))
    return;
  progression.plateau_evals = better ? 0 : progression.plateau_evals + 1;
  if (progression.plateau_evals <= schedule.patience) return;
  progression.plateau_evals = 0;
  ++progression.rate_falls;
}

bool RunPolicy::out_of_patience(const Progression& progression) const {
  const int64_t patience = config_.eval.early_stop_patience;
  return patience > 0 && progression.evals_since_best >= patience;
}

RunPolicy::Next RunPolicy::next(const Position& position,
                                bool evaluated,
                                const Progression& progression) const {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  const bool keeps_any = checkpoint.every > 0 || checkpoint.every_minutes > 0 || checkpoint.at_end;
  const bool best =
      evaluated && progression.best_step == position.step && checkpoint.keep_best && keeps_any;
  Next next;
  next.early_stopped = out_of_patience(progression);
  next.preempted = position.stop && position.step < config_.train.steps;
  next.end = position.last || next.early_stopped || position.stop;
  if (due(checkpoint.every, position.step) || position.save_due || best || next.preempted ||
      (next.end && checkpoint.at_end))
    next.save = checkpoint::SaveTo::kRunFolder;
  else if (!next.end && due(checkpoint.local.every, position.step))
    next.save = checkpoint::SaveTo::kHosts;
  next.hash = next.save || next.end || due(config_.train.hash_every, position.step);
  return next;
}

}  // namespace lockstep::train
