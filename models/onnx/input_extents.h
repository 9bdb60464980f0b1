#pragma once
// The extents of a file's inputs, from what the file leaves open and what is given for it.

#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// In the order of File::inputs. Throws ConfigError: axes that stay open, a batch that the file fixes to
// another size, names that the file does not have, all with what to give.
std::vector<Extents> input_extents(const File& file, const BindOptions& options);

}  // namespace lockstep::onnx
