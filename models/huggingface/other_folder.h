#pragma once
// Names what people give instead of a model's folder: adapters, pipelines, checkpoints, files.

#include <filesystem>
#include <string>

namespace lockstep::huggingface {

// Like what_it_is_instead() of folder.h, for a folder with a config.json, but without weights that
// are read here.
std::string weights_instead(const std::filesystem::path& folder);

}  // namespace lockstep::huggingface
