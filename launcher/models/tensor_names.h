#pragma once
// The names that other programs use for a model's tensors.

#include <string>

#include "runtime/config/model_traits.h"

namespace lockstep::launcher {

// Allowed values of --names.
inline constexpr const char* kOwnNames = "own";
inline constexpr const char* kTorchvisionNames = "torchvision";
inline constexpr const char* kHuggingFaceNames = "huggingface";

// The name, in a file with such names, of the tensor that the model calls `name`.
inline std::string name_in_file(const std::string& names,
                                const config::ModelTraits& model,
                                const std::string& name) {
  if (names != kTorchvisionNames) return name;
  for (const auto& [ours, theirs] : model.torchvision_names) {
    if (name.starts_with(ours)) return theirs + name.substr(ours.size());
  }
  return name;
}

}  // namespace lockstep::launcher
