#pragma once
// Puts the preprocessing of inputs into the graph of an ONNX file.

#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "models/onnx/write/additions.h"
#include "runtime/config/preprocessing.h"
#include "runtime/config/run_config.h"

namespace lockstep::onnx {

// An input of the network that is made from the data.
struct PreparedInput {
  size_t index = 0;             // in File::inputs
  bool channels_first = false;  // images (N, C, H, W); otherwise numbers (N, ...)
};

// The inputs of numbers and images.
std::vector<PreparedInput> prepared_inputs(const std::vector<OnnxInput::Meaning>& meanings);

// Adds nodes that make these inputs, in the order in which they share the features of a sample. The
// file then has other inputs instead:
// - images: "pixels" (N, H, W, C) uint8, of the size of the network's input;
// - a table: one for each column, (N, 1), with its name: double, NaN if missing, or string, ""
//   if missing.
// If the target is standardised, further nodes replace the output, of index `output` in
// File::outputs, by one with the target's name, in its unit. Names that the file has already get a
// "_" at the end.
// Throws ConfigError if the inputs do not fit, and if there is nothing to add.
void add_preprocessing_nodes(const File& file,
                             const std::vector<PreparedInput>& inputs,
                             size_t output,
                             const config::Preprocessing& preprocessing,
                             Additions& additions);

}  // namespace lockstep::onnx
