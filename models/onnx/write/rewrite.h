#pragma once

#include <map>
#include <string>

#include "models/onnx/read/wire.h"
#include "models/onnx/write/tensor_writer.h"

namespace lockstep::onnx {

// Copies the bytes of an ONNX file, with new elements for the tensors named in `replaced`.
// `tensors` collects the external elements. `path` is the file's, for error messages. Throws
// ConfigError.
ByteChain rewrite_model(Bytes model,
                        const std::string& path,
                        const std::map<std::string, Array>& replaced,
                        TensorWriter& tensors);

}  // namespace lockstep::onnx
