#pragma once
// Shows what the ranks of a run did last.

#include <filesystem>
#include <string>

namespace lockstep::launcher {

// For each rank of the newest start in the run folder, prints its host and process and what it did
// last. If `json` is not empty, writes that and the newest operations to it. Throws CheckpointError
// if there are no flight recorders.
void show_flight(const std::filesystem::path& run_dir, const std::string& json);

}  // namespace lockstep::launcher
