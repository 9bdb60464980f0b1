#pragma once
// Checks a step against checksums. Every step: the state between updates (state_checksums.h). Some
// steps: what ranks send each other, that is gathered parameters (gathered_checksums.h) and
// gradients (collectives/reduce/transfer_checksums.h).

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/reduce/transfer_checksums.h"
#include "runtime/train/run_context.h"
#include "runtime/train/step/gathered_checksums.h"
#include "runtime/train/step/state_checksums.h"

namespace lockstep::train {

class StepChecks {
 public:
  // All borrowed. `state`: null if the guard is off; then nothing is checked.
  StepChecks(const RunContext& context, const RunMemory& memory, StateChecksums* state);

  StateChecksums* state() const { return state_; }
  // Call when the state in memory is known to be right.
  void begin();

  // The step after `done` completed ones begins.
  void begin_step(int64_t done);
  // Whether transfers between ranks are checked in this step.
  bool checks_transfers() const { return due_; }
  collectives::TransferChecksums* sent_gradients() { return due_ && sent_ ? &*sent_ : nullptr; }
  GatheredChecksums* gathered() { return due_ && gathered_ ? &*gathered_ : nullptr; }
  // The digest of the state at the beginning of the step, if it is known: see
  // StateChecksums::digest().
  std::optional<uint64_t> digest() const;

  // Whether this rank finds no damage, after the step's gradients are reduced and before the
  // update. Waits for queued work. `step_ms`: duration of the step so far. Collective: all ranks
  // call it together.
  bool examine(double step_ms);
  // Whether the state in memory has no damage. Does not communicate.
  bool examine_memory();
  // What was damaged, as the rest of a sentence that begins with the rank; empty if nothing was. In
  // this rank's own state, and in what came from other ranks, which may have been damaged before it
  // was sent.
  const std::string& found_in_state() const { return found_in_state_; }
  const std::string& found_in_transfers() const { return found_in_transfers_; }

  // The name of an array of this run in messages, such as "master weight".
  std::string name_of(StateArray array) const;

 private:
  bool note(const std::optional<StateChecksums::Damage>& damage);
  bool examine_state();
  void examine_transfers();
  void choose_interval(double step_ms);

  const RunContext& context_;
  StateChecksums* state_;
  std::optional<collectives::TransferChecksums> sent_;  // none if no sent gradients can be compared
  std::optional<GatheredChecksums> gathered_;           // none if nothing is gathered
  int64_t every_ = 0;  // steps between checks of transfers; 0: not known yet
  int64_t steps_ = 0;  // since begin()
  bool due_ = false;   // whether transfers are checked in this step
  std::string found_in_state_, found_in_transfers_;
};

}  // namespace lockstep::train
