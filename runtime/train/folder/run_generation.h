#pragma once
// RUN_DIR/generation: which start of the run counts. `lockstep launch` numbers its starts and tells
// their ranks. A start that it has given up, because a process cannot be killed or a host does not
// answer, may still run somewhere: before it makes anything visible in the run folder it looks into
// this file, finds a later number, and ends.
//
// Two may write the file: who holds the folder's writer.lock, and the `launch` whose number stands
// there. So a second `launch` on a busy folder cannot end the first one's ranks.

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep {

struct RunGeneration {
  int64_t number = 0;       // 0: none
  std::string launch = {};  // a random name of the `launch` that it belongs to
};

// This process's, as LOCKSTEP_GENERATION and LOCKSTEP_LAUNCH_ID say; none if `launch` did not start it.
const RunGeneration& own_generation();

// The one in the folder; none if there is no file. Throws IoError, CheckpointError.
RunGeneration read_generation(const std::filesystem::path& run_dir);

// Replaces the file, durably. Throws IoError.
void write_generation(const std::filesystem::path& run_dir, const RunGeneration& generation);

// Throws CheckpointError if a later one counts in the folder. Call it directly before anything that
// counts appears there or is removed. From any thread of any rank; free without `launch`.
void check_generation(const std::filesystem::path& run_dir,
                      const RunGeneration& own = own_generation());

// The number of the next start of `launch`. The starts before it, of which ranks may be left, publish
// nothing from now on. `newest`: its last start's. Throws IoError, CheckpointError.
RunGeneration next_generation(const std::filesystem::path& run_dir, const RunGeneration& newest);

}  // namespace lockstep
