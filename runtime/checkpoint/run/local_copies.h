#pragma once
// Copies of a checkpoint on the hosts' own disks (checkpoint.local). Each host has a folder with
// the files that its ranks have written, and a state that describes the files of all ranks.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/checkpoint/format/state.h"
#include "runtime/checkpoint/run/saved_run.h"

namespace lockstep::checkpoint {

inline constexpr const char* kLocalCopiesName = "local_copies";  // file of the run folder

class LocalCopies {
 public:
  explicit LocalCopies(const SavedRun& run) : run_(run) {}  // borrowed

  bool wanted() const { return run_.config.local.every > 0; }
  // Determines the folders' name, which is kept in the file local_copies in the run folder.
  // `discard_old` chooses a new name, so that earlier copies no longer count. Collective; throws
  // AgreedError.
  void open(bool discard_old);
  // The checkpoints/ folder of this rank's host; empty before open().
  const std::filesystem::path& root() const { return root_; }
  // Whether a checkpoint's folder is one of the copies.
  bool holds(const std::filesystem::path& checkpoint) const {
    return wanted() && checkpoint.parent_path() == root_;
  }
  // Whether this rank creates and removes what ranks with the same root share.
  bool leads() const { return leads_; }

  // The newest step after `step` for which every rank finds, in copies of the same checkpoint, the
  // files that it would read undamaged. Collective.
  std::optional<int64_t> newest_after(int64_t step) const;

  // Removes all copies and the folder. What cannot be removed stays.
  void remove() const;

 private:
  std::string usable_state(const std::filesystem::path& folder) const;

  const SavedRun& run_;
  std::filesystem::path root_;
  bool leads_ = false;
};

}  // namespace lockstep::checkpoint
