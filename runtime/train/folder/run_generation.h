#pragma once
// RUN_DIR/generation: the number of the start that may write to the folder. `lockstep launch`
// numbers its starts and passes the number to their ranks. A start that it has given up, because a
// process cannot be killed or a host does not answer, may still run somewhere. Before such a
// process makes anything visible in the run folder, it reads this file, finds a larger number, and
// ends.
//
// Only two processes may write the file: the holder of the folder's writer.lock, and the `launch`
// whose id is in the file. So a second `launch` on a folder in use cannot end the ranks of the
// first.

#include <cstdint>
#include <filesystem>
#include <string>

namespace lockstep::train {

struct RunGeneration {
  int64_t number = 0;       // 0: none
  std::string launch = {};  // a random id of the `launch` that it belongs to
};

// The generation of this process, from LOCKSTEP_GENERATION and LOCKSTEP_LAUNCH_ID; none if `launch`
// did not start it.
const RunGeneration& own_generation();

// The generation in the folder; none if there is no file. Throws IoError, CheckpointError.
RunGeneration read_generation(const std::filesystem::path& run_dir);

// Replaces the file, durably. Throws IoError.
void write_generation(const std::filesystem::path& run_dir, const RunGeneration& generation);

// Throws CheckpointError if a later generation owns the folder. Call it directly before creating or
// removing files there that matter. Callable from any thread of any rank; costs nothing without
// `launch`.
void check_generation(const std::filesystem::path& run_dir,
                      const RunGeneration& own = own_generation());

// Returns the generation for the next start of `launch`; earlier starts, whose ranks may still run,
// can publish nothing from now on. `newest`: the generation of its last start. Throws IoError,
// CheckpointError.
RunGeneration next_generation(const std::filesystem::path& run_dir, const RunGeneration& newest);

}  // namespace lockstep::train
