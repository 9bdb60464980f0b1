#include "runtime/train/run_policy.h"

#include <algorithm>

namespace lockstep {
namespace {

bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

}  // namespace

RunPolicy::RunPolicy(const RunConfig& config, bool evaluates)
    : config_(config), has_evaluation_(evaluates) {}

int64_t RunPolicy::last_step(int64_t max_steps) const {
  return max_steps >= 0 ? std::min(max_steps, config_.train.steps) : config_.train.steps;
}

// An evaluation only because this process ends here changes nothing: the run goes on as if it had
// not been interrupted.
bool RunPolicy::judged(const Place& place) const {
  return due(config_.eval.every, place.step) || place.step == config_.train.steps;
}

bool RunPolicy::evaluates(const Place& place) const {
  return has_evaluation_ && (judged(place) || (place.last && !place.stop));
}

void RunPolicy::judge(const Evaluation& evaluation,
                      const Place& place,
                      Progression& progression) const {
  if (!judged(place)) return;
  const double metric = evaluation.value_of(config_.eval.best);
  const bool smaller = smaller_is_better(config_.eval.best);
  const auto& best = progression.best_metric;
  const bool better = !best || (smaller ? metric < *best : metric > *best);
  if (better) {
    progression.best_metric = metric;
    progression.best_step = place.step;
    progression.evals_since_best = 0;
  } else {
    ++progression.evals_since_best;
  }
  const ScheduleConfig& schedule = config_.schedule;
  // An evaluation at the end of the run alone would be another one in a longer run.
  if (schedule.kind != ScheduleConfig::Kind::kPlateau || !due(config_.eval.every, place.step))
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

RunPolicy::Next RunPolicy::next(const Place& place,
                                bool evaluated,
                                const Progression& progression) const {
  const CheckpointConfig& checkpoint = config_.checkpoint;
  const bool keeps_any = checkpoint.every > 0 || checkpoint.every_minutes > 0 || checkpoint.at_end;
  const bool best =
      evaluated && progression.best_step == place.step && checkpoint.keep_best && keeps_any;
  Next next;
  next.early_stopped = out_of_patience(progression);
  next.preempted = place.stop && place.step < config_.train.steps;
  next.end = place.last || next.early_stopped || place.stop;
  next.save = due(checkpoint.every, place.step) || place.save_due || best || next.preempted ||
              (next.end && checkpoint.at_end);
  next.copy = !next.save && !next.end && due(checkpoint.local.every, place.step);
  next.hash = next.save || next.copy || next.end || due(config_.train.hash_every, place.step);
  return next;
}

}  // namespace lockstep
