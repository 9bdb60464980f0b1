#pragma once
// Writes ONNX files with new elements and additions.

#include <map>
#include <string>

#include "models/onnx/read/array.h"
#include "models/onnx/read/parse_file.h"
#include "models/onnx/read/wire.h"
#include "models/onnx/write/additions.h"

namespace lockstep::onnx {

// Copies the file `source` to `target`, with new elements for the graph's initializers and Constant
// nodes named in `replaced`, and with the additions. Everything else is copied byte for byte. Types
// stay: floating-point elements are rounded to the tensor's type. External data goes to
// TARGET.data; if the file would exceed `limit_bytes`, so do tensors of 1 KiB and more. Both files
// appear complete or not at all; `target` may be `source`. Throws ConfigError like read_file(), and
// for unknown names and for other extents or types than the tensor's; IoError if a file cannot be
// written.
void write_file(const std::string& source,
                const std::string& target,
                const std::map<std::string, Array>& replaced,
                const Additions& additions = {},
                uint64_t limit_bytes = kLargestFile);

// The same for a model in memory, whose external data are in the folder of `source`.
void write_model(Bytes model,
                 const std::string& source,
                 const std::string& target,
                 const std::map<std::string, Array>& replaced,
                 const Additions& additions = {},
                 uint64_t limit_bytes = kLargestFile);

}  // namespace lockstep::onnx
