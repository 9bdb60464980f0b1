#pragma once

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::launcher {

// Whether `lockstep inspect` treats the path as an ONNX file, by its name.
bool is_onnx_path(const std::string& path);

// The config to train the network of an ONNX file, or of a config whose model is one, with
// overrides ("model.onnx.context=128"). Throws ConfigError.
OnnxConfig onnx_config_of(const std::string& path, const std::vector<std::string>& overrides);

// Prints the file's inputs with their open axes, outputs, parameters, opset, producer and number of
// nodes for each op, and how it would be trained (onnx_training.h); with `tensors` also each
// initializer. If `json` is not empty, writes that to it. Throws ConfigError if the file is not a
// network and, after everything is printed and written, if it cannot be trained.
void show_onnx(const OnnxConfig& config, bool tensors, const std::string& json);

}  // namespace lockstep::launcher
