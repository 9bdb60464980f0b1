#pragma once
// Writes the network of a built-in family as an ONNX file.

#include <string>

#include "models/onnx/from_graph/graph_writer.h"
#include "models/onnx/read/parse_file.h"
#include "models/onnx/trained_file.h"
#include "models/onnx/write/additions.h"
#include "models/registry.h"

namespace lockstep::onnx {

// Writes the network's forward pass with these elements. The model must be resolved. Inputs:
// "features" (N, F), "pixel_values" (N, C, H, W), normalised, or "input_ids" (N, T) int64, for text
// encoders with "attention_mask" and, if there are several segments, "token_type_ids". The output
// is "output". N is open and so is T, unless the network depends on it. Throws ConfigError if an op
// cannot be written; IoError.
void write_network(const models::OpenedModel& model,
                   const models::ModelIo& io,
                   const std::string& path,
                   const TrainedElements& elements,
                   const TrainedFileOptions& options = {});

// The same for a forward graph. `name` is that of the network, for the file and for error messages.
// If the file would exceed `limit_bytes`, its elements go to PATH.data (write_file.h).
void write_graph(const ProbedGraph& network,
                 const std::string& name,
                 const std::string& path,
                 const TrainedElements& elements,
                 const Additions& additions = {},
                 uint64_t limit_bytes = kLargestFile);

}  // namespace lockstep::onnx
