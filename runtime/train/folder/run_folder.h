#pragma once
// The run folder, as the one process that writes there has it.

#include <sys/types.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/train/folder/optional_files.h"
#include "runtime/train/folder/writer_lock.h"

namespace lockstep {

class RunFolder {
 public:
  // Makes the folder if needed, takes its writer.lock, notes its generation there, and removes what
  // writers that died have left in its checkpoints/. The folder itself, and its checkpoints/, may be
  // links; files that a run appends to may not. Throws CheckpointError, IoError.
  explicit RunFolder(const std::filesystem::path& path,
                     const WriterLockOptions& options = WriterLockOptions::from_environment());

  const std::filesystem::path& path() const { return path_; }
  // Throws CheckpointError where the path does not lead to the folder that was opened any more
  // (removed, moved, replaced), another process has its lock, or a later generation counts there.
  // What cannot be found out, because the disk or its server does not answer, is no reason to end.
  void check();

  // Files that the run can do without.
  OptionalFiles& optional_files() { return optional_files_; }

 private:
  std::filesystem::path path_;
  RunGeneration generation_;
  Descriptor folder_;
  dev_t device_ = 0;  // and inode of the folder
  ino_t inode_ = 0;
  WriterLock lock_;
  OptionalFiles optional_files_;
};

}  // namespace lockstep
