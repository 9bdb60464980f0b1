#pragma once
// How a config spells what a variant or an enum holds.

#include <string>

#include "runtime/config/run_config.h"

namespace lockstep {

// "gpt", "resnet".
std::string section_of(const ModelConfig& model);
// "data.image_folder", "data.idx".
std::string section_of_source(const DataConfig& data);
// "GELU_TANH".
std::string name_of(Activation activation);

}  // namespace lockstep
