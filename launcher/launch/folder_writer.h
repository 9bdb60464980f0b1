#pragma once
// Who writes to a run folder now.

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::launch {

struct FolderWriter {
  std::string host, pid;  // as writer.lock says
};

// The process that holds the folder's writer.lock; nothing if there is none, as of a run that has
// ended or died. On a file system without locks, a file that was written in the last minute counts
// as held.
std::optional<FolderWriter> writer_of(const std::filesystem::path& run_dir);

}  // namespace lockstep::launch
