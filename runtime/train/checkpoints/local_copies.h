#pragma once
// Copies of the run on the hosts' own disks (checkpoint.local): a folder on each host with what its
// ranks have written and, in the state, what all ranks have.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "runtime/checkpoint/state.h"
#include "runtime/train/run_parts.h"

namespace lockstep {

class LocalCopies {
 public:
  explicit LocalCopies(const RunParts& parts);  // borrowed

  bool wanted() const { return parts_.config.checkpoint.local.every > 0; }
  // Finds the folders. They are named after the run folder, by the name that the file local_copies
  // in it has; `anew` gives it another one, so that nothing counts that was there before. All ranks
  // together; throws AgreedError.
  void open(bool anew);
  // The checkpoints/ folder of this rank's host; empty before open().
  const std::filesystem::path& root() const { return root_; }
  // Whether this rank makes and removes what the ranks with the same root share.
  bool leads() const { return leads_; }

  // The newest step after `step` of which every rank finds unharmed what it would read, of the same
  // checkpoint. All ranks together.
  std::optional<int64_t> newest_after(int64_t step) const;

  // Removes them all, with the folder. What cannot be removed stays.
  void remove() const;

 private:
  void write_name(const std::filesystem::path& file, const std::string& name) const;
  std::string usable_state(const std::filesystem::path& folder) const;

  const RunParts& parts_;
  std::filesystem::path root_;
  bool leads_ = false;
};

}  // namespace lockstep
