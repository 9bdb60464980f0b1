#pragma once
// The run folder, as the one process that writes there has it.

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/train/folder/writer_lock.h"

namespace lockstep {

class RunFolder {
 public:
  // Makes the folder where needed, takes its writer.lock, and removes what writers that died have
  // left in its checkpoints/. Throws CheckpointError, IoError.
  explicit RunFolder(const std::filesystem::path& path,
                     const WriterLockOptions& options = WriterLockOptions::from_environment());

  const std::filesystem::path& path() const { return path_; }
  // Throws CheckpointError where the path does not lead to the folder that was opened any more
  // (removed, moved, replaced), or another process has its lock.
  void check();

 private:
  std::filesystem::path path_;
  Descriptor folder_;
  WriterLock lock_;
};

}  // namespace lockstep
