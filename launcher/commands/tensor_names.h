#pragma once
// How other programs name the tensors of a model.

#include <string>

#include "runtime/config/run_config.h"

namespace lockstep {

// Allowed values of --names.
inline constexpr const char* kOwnNames = "own";
inline constexpr const char* kTorchvisionNames = "torchvision";

// The name in such a file of the tensor that the model calls `name`. torchvision calls the last
// layer of every residual network fc, also where ours, after the usual files of CIFAR networks, is
// linear; else the names are ours.
std::string name_in_file(const std::string& names,
                         const ModelConfig& model,
                         const std::string& name);

}  // namespace lockstep
