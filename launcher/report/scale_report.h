#pragma once
// The report of a measurement by `lockstep scale`.

#include <filesystem>
#include <string>

namespace lockstep::report {

// Whether the folder has what `scale` writes.
bool is_scale_folder(const std::filesystem::path& folder);

// The page: the pictures that `scale` has drawn, and the figures of scaling.json. Throws
// CheckpointError if that file is damaged, and IoError.
std::string scale_report(const std::filesystem::path& folder);

}  // namespace lockstep::report
