#pragma once
// The run folder, as seen by the one process that writes there.

#include <sys/types.h>

#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/train/folder/optional_files.h"
#include "runtime/train/folder/writer_lock.h"

namespace lockstep::train {

class RunFolder {
 public:
  // Creates the folder if needed, takes its writer.lock, records its generation there, and removes
  // leftovers of writers that died from its checkpoints/. The folder and its checkpoints/ may be
  // symbolic links; files to which a run appends may not. Throws CheckpointError, IoError.
  explicit RunFolder(const std::filesystem::path& path,
                     const WriterLockOptions& options = WriterLockOptions::from_environment());

  const std::filesystem::path& path() const { return path_; }
  // Throws CheckpointError if the path no longer leads to the folder that was opened (removed,
  // moved, replaced), another process has its lock, or a later generation owns it. If this cannot
  // be determined, because the disk or its server does not answer, the run continues.
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

}  // namespace lockstep::train
