#pragma once
// The checkpoints/ folder of a run: which checkpoints it has, which one to resume from, which one
// is best, and which to remove. Errors are CheckpointError or IoError. Only one process at a time
// may change a folder.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::checkpoint {

struct CheckpointEntry {
  int64_t step = 0;
  std::filesystem::path path;
};

// "step-00000042".
std::string checkpoint_name(int64_t step);

// The step of a name that checkpoint_name() made; -1 for any other name.
int64_t step_of_name(std::string_view name);

// All finished checkpoints in ascending order of step, without a check of their contents. Empty if
// `root` does not exist.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& root);

// The newest checkpoint whose state is readable and whose files exist with their recorded sizes, if
// there is one. `skipped`, if not null, receives a line for each newer checkpoint that was skipped.
std::optional<CheckpointEntry> find_latest(const std::filesystem::path& root,
                                           std::vector<std::string>* skipped = nullptr);

// The checkpoint that a user means by `path`: a checkpoint folder itself, or the latest one of a
// checkpoints/ folder or run folder. checkpoints/best means the best one. Throws CheckpointError if
// there is none.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

// The file `best` in `root` contains the name of the best checkpoint. read_best() returns no value
// if the file, or the checkpoint that it names, does not exist.
void write_best(const std::filesystem::path& root, int64_t step);
std::optional<CheckpointEntry> read_best(const std::filesystem::path& root);

// Removes all checkpoints but the newest `keep_last` (>= 1) readable ones and that of step
// `keep_step`. Checkpoints after step `newest` are left alone and do not count. A folder is renamed
// before its contents are removed, so that an interruption leaves nothing that looks like a
// complete checkpoint. Unreadable checkpoints newer than the oldest kept one stay, for inspection,
// and do not count. A checkpoint that cannot be removed stays, with a warning. `check` is called
// before each removal; if it throws, prune() stops.
void prune(const std::filesystem::path& root,
           int64_t keep_last,
           std::optional<int64_t> keep_step = std::nullopt,
           int64_t newest = std::numeric_limits<int64_t>::max(),
           const std::function<void()>& check = {});

}  // namespace lockstep::checkpoint
