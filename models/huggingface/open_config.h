#pragma once
// Opens a config.json and finds the family that reads it.

#include <filesystem>
#include <string>

#include "models/huggingface/family.h"
#include "runtime/base/json.h"

namespace lockstep::huggingface {

inline constexpr const char* kConfigFile = "config.json";

// Throws ConfigError if the file cannot be read or is not JSON.
Json read_json(const std::filesystem::path& path);

struct OpenConfig {
  Json json;
  std::string origin;  // the path of the file
  const Family* family = nullptr;

  // Throws ConfigError if there is no such file, it is not JSON, or no family reads its model_type.
  // `field` is the config field or option that gave the folder, for the error message.
  explicit OpenConfig(const std::filesystem::path& folder, const char* field = "model.from");
};

}  // namespace lockstep::huggingface
