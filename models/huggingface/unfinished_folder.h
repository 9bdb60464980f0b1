#pragma once
// Creates a folder atomically: it appears complete or not at all.

#include <filesystem>
#include <functional>

#include "runtime/checkpoint/format/safetensors.h"

namespace lockstep::huggingface {

// Lets `fill` write into a temporary folder beside `out`, then renames it to `out`. Throws
// CheckpointError if `out` exists, IoError if writing fails.
checkpoint::WrittenFile make_folder(
    const std::filesystem::path& out,
    const std::function<checkpoint::WrittenFile(const std::filesystem::path& folder)>& fill);

}  // namespace lockstep::huggingface
