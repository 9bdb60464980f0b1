#include "runtime/checkpoint/run/saving.h"

#include <utility>

#include "runtime/base/flight_recorder.h"
#include "runtime/base/log.h"

namespace lockstep::checkpoint {

Saving::Saving(SavedRun run, CheckpointSource& source)
    : run_(std::move(run)), local_(run_), checkpointer_(run_, source, local_) {}

void Saving::advance() {
  if (!checkpointer_.saving()) return;
  if (const std::optional<SaveOutcome> outcome = checkpointer_.advance())
    note(*outcome, /*last=*/false);
}

void Saving::save(CheckpointState state, SaveTo where, bool last) {
  if (checkpointer_.saving()) {
    if (!last && !wait_logged_)
      log_info(
          "step {}: waiting for the previous checkpoint, which is still being written; a larger "
          "checkpoint interval would avoid this wait",
          state.step);
    wait_logged_ = true;
    finish();
  }
  if (clock_ && where == SaveTo::kRunFolder) clock_->save_begins();
  const std::optional<SaveOutcome> outcome =
      checkpointer_.save(std::move(state), where, /*in_background=*/!last);
  if (outcome) note(*outcome, last);
  if (last) local_.remove();
}

void Saving::finish() {
  if (!checkpointer_.saving()) return;
  const FlightScope saving(FlightPhase::kSaving);
  note(checkpointer_.finish(), /*last=*/false);
}

void Saving::finish_before_exit() {
  try {
    finish();
  } catch (const collectives::AgreedError& error) {
    log_warn("{}", error.what());
  }
}

// A failed save ends the run if that is the config's policy, or if no later save could replace it.
void Saving::note(const SaveOutcome& outcome, bool last) {
  if (outcome.where == SaveTo::kHosts) {  // only speeds up a restart: the run continues without it
    if (outcome.error)
      return log_warn(
          "step {}: the hosts' copy could not be written: {}", outcome.step, outcome.error->what());
    return log_record(fmt::format(
        "step {}: copied to the hosts, weights_hash {:016x}", outcome.step, outcome.weights_hash));
  }
  if (clock_) clock_->save_took(outcome.seconds);
  if (!outcome.error) {
    good_step_ = outcome.step;
    ++written_;
    log_record(fmt::format(
        "step {}: checkpoint written, weights_hash {:016x}", outcome.step, outcome.weights_hash));
    return;
  }
  ++failed_;
  if (last || run_.config.on_failure == CheckpointConfig::OnFailure::kStop) throw *outcome.error;
  log_warn("step {}: the checkpoint could not be written; the run continues: {}",
           outcome.step,
           outcome.error->what());
}

}  // namespace lockstep::checkpoint
