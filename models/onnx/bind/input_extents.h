#pragma once
// Finds the extents of a file's inputs, with the options' values for axes that the file leaves
// open.

#include <vector>

#include "models/onnx/network.h"

namespace lockstep::onnx {

// The extents in the order of File::inputs. Throws ConfigError if an axis stays open, the file
// fixes another batch, or a name of the options is unknown; the message has the remedy.
std::vector<Extents> input_extents(const File& file, const BindOptions& options);

}  // namespace lockstep::onnx
