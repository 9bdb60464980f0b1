#pragma once

#include <string>

namespace lockstep {

// Whether `lockstep inspect` takes the path for an ONNX file, by its name.
bool is_onnx_path(const std::string& path);

// Prints what the file is: inputs with the axes that it leaves open, outputs, parameters, opset, who wrote
// it, how many nodes of each op, and what training it is (onnx_training.h); with `tensors` each initializer. `json`, where it is not empty, receives that.
// Throws ConfigError where the file is no network.
void show_onnx(const std::string& path, bool tensors, const std::string& json);

}  // namespace lockstep
