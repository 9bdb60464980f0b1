#pragma once
// How other programs name the tensors of a model.

#include <string>

#include "runtime/config/model_traits.h"

namespace lockstep {

// Allowed values of --names.
inline constexpr const char* kOwnNames = "own";
inline constexpr const char* kTorchvisionNames = "torchvision";
inline constexpr const char* kHuggingFaceNames = "huggingface";

// The name in such a file of the tensor that the model calls `name`.
std::string name_in_file(const std::string& names,
                         const ModelTraits& model,
                         const std::string& name);

}  // namespace lockstep
