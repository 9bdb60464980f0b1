#pragma once

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

// Whether `lockstep inspect` takes the path for an ONNX file, by its name.
bool is_onnx_path(const std::string& path);

// What trains the network of an ONNX file, or of a config whose model is one, with overrides
// ("model.onnx.context=128"). Throws ConfigError.
OnnxConfig onnx_config_of(const std::string& path, const std::vector<std::string>& overrides);

// Prints what the file is: inputs with the axes that it leaves open, outputs, parameters, opset, who wrote
// it, how many nodes of each op, and what training it is (onnx_training.h); with `tensors` each initializer. `json`, where it is not empty, receives that.
// Throws ConfigError if the file is no network, and, after all is printed and written, if it cannot be trained.
void show_onnx(const OnnxConfig& config, bool tensors, const std::string& json);

}  // namespace lockstep
