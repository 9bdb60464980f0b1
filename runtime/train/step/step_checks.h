#pragma once
// What a step holds against checksums: at every step what lies still between updates
// (state_sums.h), and at some steps what ranks send each other: gathered parameters
// (gathered_sums.h) and gradients (collectives/reduce/transfer_sums.h).

#include <cstdint>
#include <optional>
#include <string>

#include "collectives/reduce/transfer_sums.h"
#include "runtime/train/run_parts.h"
#include "runtime/train/step/gathered_sums.h"
#include "runtime/train/step/state_sums.h"

namespace lockstep {

class StepChecks {
 public:
  // All borrowed. `state`: null where nothing is guarded; then nothing is checked.
  StepChecks(const RunParts& parts, const RunMemory& memory, StateSums* state);

  StateSums* state() const { return state_; }
  // The state that lies in memory now is right.
  void begin();

  // The step after `done` completed ones begins.
  void begin_step(int64_t done);
  // Whether it is one in which what ranks send is checked.
  bool checks_transfers() const { return due_; }
  TransferSums* sent_gradients() { return due_ && sent_ ? &*sent_ : nullptr; }
  GatheredSums* gathered() { return due_ && gathered_ ? &*gathered_ : nullptr; }
  // Of the state that the step began with, where it is known: see StateSums::digest().
  std::optional<uint64_t> digest() const;

  // Whether this rank finds all as it should be, once the step's gradients are reduced, and before
  // the update. Waits for what is queued. All ranks together; `step_ms`: of the step so far.
  bool examine(double step_ms);
  // The same of what lies in memory, and that alone. Communicates nothing.
  bool examine_memory();
  // What was wrong, as the rest of a sentence that begins with the rank; empty where nothing was: of
  // what this rank keeps, and of what has come from others, which may have been damaged before.
  const std::string& found_in_state() const { return found_in_state_; }
  const std::string& found_in_transfers() const { return found_in_transfers_; }

  // "master weight", as messages name the arrays of this run.
  std::string name_of(StateArray array) const;

 private:
  bool note(const std::optional<StateSums::Damage>& damage);
  bool examine_state();
  void examine_transfers();
  void choose_interval(double step_ms);

  const RunParts& parts_;
  StateSums* state_;
  std::optional<TransferSums> sent_;      // none where nothing is sent that could be compared
  std::optional<GatheredSums> gathered_;  // none where nothing is gathered
  int64_t every_ = 0;                     // steps between checks of transfers; 0: not known yet
  int64_t steps_ = 0;                     // since begin()
  bool due_ = false;                      // that check, in this step
  std::string found_in_state_, found_in_transfers_;
};

}  // namespace lockstep
