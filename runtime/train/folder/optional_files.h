#pragma once
// Small files of a run folder that a run can do without, each written whole.

#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

// A file that cannot be written, because the disk is full or does not answer, does not end the run:
// a warning is logged once, its text stays in memory, and each retry() tries again.
class OptionalFiles {
 public:
  OptionalFiles() = default;
  OptionalFiles(const OptionalFiles&) = delete;
  OptionalFiles& operator=(const OptionalFiles&) = delete;

  // Replaces a file, or keeps `text`. Throws IoError if waiting would not help, and CheckpointError
  // if a later generation counts in the folder.
  void write(const std::filesystem::path& path, const std::string& text);
  void retry() noexcept;
  // The last retry: logs which files are missing.
  void finish() noexcept;

 private:
  std::map<std::filesystem::path, std::string> unwritten_;
};

}  // namespace lockstep
