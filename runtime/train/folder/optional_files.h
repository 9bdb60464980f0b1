#pragma once
// Small files of a run folder that a run can do without. Each is replaced as a whole.

#include <filesystem>
#include <map>
#include <string>

namespace lockstep::train {

// If a file cannot be written, because the disk is full or does not answer, the run continues: a
// warning is logged once, the text stays in memory, and each retry() tries again.
class OptionalFiles {
 public:
  OptionalFiles() = default;
  OptionalFiles(const OptionalFiles&) = delete;
  OptionalFiles& operator=(const OptionalFiles&) = delete;

  // Replaces a file. If that fails for now, keeps `text`. Throws IoError if waiting would not help,
  // and CheckpointError if a later generation owns the folder.
  void write(const std::filesystem::path& path, const std::string& text);
  void retry() noexcept;
  // Tries one last time, and logs which files are missing.
  void finish() noexcept;

 private:
  std::map<std::filesystem::path, std::string> unwritten_;
};

}  // namespace lockstep::train
