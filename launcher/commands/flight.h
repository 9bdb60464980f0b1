#pragma once
// What the ranks of a run did last, for people.

#include <filesystem>
#include <string>

namespace lockstep {

// Prints, for each rank of the newest start in the run folder, who it was and what it did last;
// `json`, where it is not empty, receives that and the newest operations. Throws CheckpointError
// where there are no flight recorders.
void show_flight(const std::filesystem::path& run_dir, const std::string& json);

}  // namespace lockstep
