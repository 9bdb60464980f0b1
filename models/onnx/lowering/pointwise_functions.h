#pragma once
// Elementwise ONNX ops, as programs of the native op `pointwise`.

#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/graph/pointwise_program.h"

namespace lockstep::onnx {

// Whether the type is an integer. Programs distinguish floating-point numbers, integers, and
// booleans, which are 1 or 0.
bool is_integer(ElementType type);

// A node and the types of its first input and its output.
struct PointwiseNode {
  const Node& node;
  ElementType from, to;
};

// Appends the node's function to the program and returns the instruction of the result. `operands`
// are the instructions of the node's inputs (-1: absent). Throws ConfigError for unsupported forms
// of the op.
using PointwiseOf = int (*)(PointwiseProgram& program,
                            const PointwiseNode& node,
                            const std::vector<int>& operands);
// Null if the op is not elementwise.
PointwiseOf pointwise_of(const std::string& op);

}  // namespace lockstep::onnx
