#pragma once
// A config.json with the family that reads it.

#include <filesystem>
#include <string>

#include "models/huggingface/family.h"
#include "runtime/base/json.h"

namespace lockstep::huggingface {

inline constexpr const char* kConfigFile = "config.json";

// Throws ConfigError where the file cannot be read or is no JSON.
Json read_json(const std::filesystem::path& path);

struct OpenConfig {
  Json json;
  std::string origin;  // the file
  const Family* family = nullptr;

  // Throws ConfigError where there is no such file, where it is no JSON, and where no family reads
  // its model_type. `field` named the folder.
  explicit OpenConfig(const std::filesystem::path& folder, const char* field = "model.from");
};

}  // namespace lockstep::huggingface
