#pragma once
// The process that writes to a run folder.

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::launch {

struct FolderWriter {
  std::string host, pid;  // as in writer.lock
};

// The process that holds the folder's writer.lock; nullopt if there is none, for example because
// the run has ended or died. On a file system without locks, the file counts as held if it was
// written in the last minute.
std::optional<FolderWriter> writer_of(const std::filesystem::path& run_dir);

}  // namespace lockstep::launch
