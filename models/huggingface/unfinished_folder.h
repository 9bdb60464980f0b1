#pragma once
// A folder that appears whole or not at all.

#include <filesystem>
#include <functional>

#include "runtime/checkpoint/safetensors.h"

namespace lockstep::huggingface {

// Has `fill` write into a new folder beside `out`, which then gets that name. Refuses an `out` that
// exists (CheckpointError). Throws IoError.
WrittenFile make_folder(
    const std::filesystem::path& out,
    const std::function<WrittenFile(const std::filesystem::path& folder)>& fill);

}  // namespace lockstep::huggingface
