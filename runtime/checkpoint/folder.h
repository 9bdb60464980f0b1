#pragma once
// The checkpoints/ folder of a run: which checkpoints it has, which to resume from, which is best,
// which to remove. Errors are CheckpointError or IoError. One process at a time may change a
// folder.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path path;
};

// "step-00000042".
std::string checkpoint_name(int64_t step);

// The step of a name that checkpoint_name made; -1 of any other.
int64_t step_of_name(std::string_view name);

// All finished checkpoints in ascending order of step, without looking into them; empty when `root`
// does not exist.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& root);

// The newest checkpoint whose state is readable and whose files exist with their recorded sizes;
// nothing when there is none. `skipped`, if not null, receives a line for each newer checkpoint
// that was passed over.
std::optional<CheckpointEntry> find_latest(const std::filesystem::path& root,
                                           std::vector<std::string>* skipped = nullptr);

// The checkpoint that a user means by `path`: a checkpoint folder itself, or the latest of a
// checkpoints/ folder or of a run folder; checkpoints/best stands for the best one. Throws
// CheckpointError when there is none.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

// The file `best` in `root` holds the name of the best checkpoint. read_best gives nothing when it
// is absent or points nowhere.
void write_best(const std::filesystem::path& root, int64_t step);
std::optional<CheckpointEntry> read_best(const std::filesystem::path& root);

// Removes all but the newest `keep_last` (>= 1) readable checkpoints and that of step `keep_step`.
// Those of steps after `newest` are left alone and do not count.
// A folder is renamed before it is emptied, so that an interruption leaves nothing that looks
// whole. Unreadable checkpoints newer than the oldest kept one stay, for inspection, and do not
// count. One that cannot be removed stays, with a warning. `check` is called before each removal;
// if it throws, that is the end.
void prune(const std::filesystem::path& root,
           int64_t keep_last,
           std::optional<int64_t> keep_step = std::nullopt,
           int64_t newest = std::numeric_limits<int64_t>::max(),
           const std::function<void()>& check = {});

}  // namespace lockstep
