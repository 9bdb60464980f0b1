#pragma once
// ONNX files with new elements.

#include <map>
#include <string>

#include "models/onnx/array.h"
#include "models/onnx/parse_file.h"

namespace lockstep::onnx {

// Writes the model of the file `source` to `target`, with the elements of `replaced` in the initializers and
// Constant nodes' outputs of these names, of the graph itself. All else is copied byte for byte. Types stay:
// floating-point elements are rounded to the tensor's own. What lay beside `source` is written beside
// `target`, to TARGET.data; so are tensors of a kibibyte and more where the file would be larger than
// `limit_bytes`. Both files appear whole; `target` may be `source`.
// Throws ConfigError as read_file() does, for names that are not there, and for extents and types that are
// not the tensor's; IoError where a file cannot be written.
void write_file(const std::string& source,
                const std::string& target,
                const std::map<std::string, Array>& replaced,
                uint64_t limit_bytes = kLargestFile);

}  // namespace lockstep::onnx
