#pragma once
// RUN_DIR/end.json: how a run has ended, written by itself once its last checkpoint is on the disk.
// What starts runs asks for it, since a launcher's exit code does not tell whether a run was ever
// begun.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct RunEnd {
  enum class Reason { kLastStep, kMaxSteps, kEarlyStopping, kPreempted };
  Reason reason = Reason::kLastStep;
  int64_t step = 0;                 // reached
  int64_t steps = 0;                // of the whole run
  std::string weights_hash;         // 16 hexadecimal digits
  std::vector<int> signalled = {};  // if preempted: the ranks that got a signal, not the others

  // Nothing was left to do.
  bool done() const { return reason != Reason::kPreempted; }
};

// "done: step 3750 of 3750, weights_hash 0123456789abcdef".
std::string text_of(const RunEnd& end);

// Throws IoError.
void write_run_end(const std::filesystem::path& run_dir, const RunEnd& end);

// Nothing where the newest start has not come to an end of its own, or the file is none of
// write_run_end().
std::optional<RunEnd> read_run_end(const std::filesystem::path& run_dir);

// A start begins. Throws IoError.
void remove_run_end(const std::filesystem::path& run_dir);

}  // namespace lockstep
