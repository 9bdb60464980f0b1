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
std::string name_in_file(const std::string& names,
                         const config::ModelTraits& model,
                         const std::string& name);

}  // namespace lockstep::launcher
