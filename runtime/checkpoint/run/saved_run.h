#pragma once
// What saving and resuming ask of the run whose checkpoints they are.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "runtime/checkpoint/format/writer.h"
#include "runtime/config/run_config.h"

namespace lockstep::checkpoint {

// The files of a run, and who writes them. Everything is borrowed.
struct SavedRun {
  collectives::Communicator& communicator;
  const CheckpointConfig& config;
  std::filesystem::path run_dir;
  int64_t generation = 0;  // the number of this start of the run; 0: it has none
  // Throws CheckpointError if a later start owns the run folder. On any rank and thread.
  std::function<void()> check_generation;
  // Throws CheckpointError if the run folder is not this run's any more. On rank 0.
  std::function<void()> require_folder;
  // Replaces a small file of the run folder, later if the disk is full. On rank 0.
  std::function<void(const std::filesystem::path& file, const std::string& text)> write_small_file;
};

// This rank's part of a run's state, as a checkpoint stores it.
class CheckpointSource {
 public:
  virtual ~CheckpointSource() = default;
  // Whether there is memory for a copy, from which a checkpoint is written while training
  // continues.
  virtual bool has_snapshot() const = 0;
  // Collects the current state. Collective: all ranks call it together. With `snapshot`, the state
  // is in the snapshot's memory once copy() is done, and training may continue then. Otherwise it
  // is complete now, and valid until training continues.
  virtual void collect(bool snapshot) = 0;
  // Makes the copies that collect() has left to do. Callable from any thread.
  virtual void copy() = 0;
  // Frees memory that was allocated in addition to the snapshot.
  virtual void release() = 0;
  // Flat; null except on rank 0.
  virtual const float* weights() const = 0;
  virtual const std::vector<MomentShard>& shards() const = 0;
};

}  // namespace lockstep::checkpoint
