#pragma once

#include <map>
#include <string>

#include "models/onnx/tensor_writer.h"
#include "models/onnx/wire.h"

namespace lockstep::onnx {

// The bytes of an ONNX file with the elements of `replaced`, and what `tensors` puts outside. `path` is the
// file's, for messages. Throws ConfigError.
Rope rewrite_model(Bytes model,
                   const std::string& path,
                   const std::map<std::string, Array>& replaced,
                   TensorWriter& tensors);

}  // namespace lockstep::onnx
