#pragma once
// Which ops can be written as ONNX nodes. A row names a function that writes the nodes of an op and
// sets its outputs; an op without a row is refused when a network is exported.

#include <span>
#include <string>

#include "models/onnx/from_graph/graph_writer.h"
#include "runtime/graph/activation.h"

namespace lockstep::onnx {

struct OpRow {
  graph::OpKind kind;
  void (*write)(GraphWriter& writer, const graph::Op& op);
};

// A table for each file of rows.
std::span<const OpRow> layer_rows();
std::span<const OpRow> image_rows();
std::span<const OpRow> token_rows();
std::span<const OpRow> attention_rows();
std::span<const OpRow> movement_rows();

std::string activated(GraphWriter& writer, const std::string& x, Activation activation);

// x / sqrt(mean of squares of rows + epsilon) gamma
std::string rms_normed(GraphWriter& writer,
                       const std::string& x,
                       const std::string& gamma,
                       float epsilon);

}  // namespace lockstep::onnx
