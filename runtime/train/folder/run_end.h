#pragma once
// RUN_DIR/end.json: how a run has ended. The run writes it after its last checkpoint is on the
// disk. Programs that start runs read it, because a launcher's exit code does not show whether a
// run has ever begun.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/train/energy_watch.h"

namespace lockstep::train {

struct RunEnd {
  enum class Reason { kLastStep, kMaxSteps, kEarlyStopping, kPreempted };
  Reason reason = Reason::kLastStep;
  int64_t step = 0;                 // the step reached
  int64_t steps = 0;                // of the whole run
  std::string weights_hash;         // 16 hexadecimal digits
  std::vector<int> signalled = {};  // if preempted: the ranks that received the signal themselves
  int64_t skipped_steps = 0;        // because a number was not finite
  int64_t bad_records = 0;          // skipped or replaced
  EnergyReport energy = {};         // written, not read back
  Json forecast = {};               // of the step's time, beside the measured one; likewise
  int64_t peak_memory_bytes = 0;    // of the largest rank's process; likewise

  // Whether nothing is left to do.
  bool done() const { return reason != Reason::kPreempted; }
};

// "done: step 3750 of 3750, weights_hash 0123456789abcdef".
std::string text_of(const RunEnd& end);

// Throws IoError.
void write_run_end(const std::filesystem::path& run_dir, const RunEnd& end);

// Returns nothing if the latest start has not ended by itself, or if the file was not written by
// write_run_end().
std::optional<RunEnd> read_run_end(const std::filesystem::path& run_dir);

// Call when a start begins. Throws IoError.
void remove_run_end(const std::filesystem::path& run_dir);

}  // namespace lockstep::train
