#pragma once
// What ops compute element by element, as programs of the op `pointwise`.

#include <string>
#include <vector>

#include "models/onnx/network.h"
#include "runtime/graph/pointwise_program.h"

namespace lockstep::onnx {

// Types are of three kinds for a program: numbers, whole numbers, and truth, which is 1 or 0.
bool is_whole(ElementType type);

// A node and the types of its first input and its output.
struct PointwiseNode {
  const Node& node;
  ElementType from, to;
};

// Appends what the node makes of its inputs, which are the instructions `operands` (-1: absent);
// returns the instruction. Throws ConfigError for a form of the op that there is no program for.
using PointwiseOf = int (*)(PointwiseProgram& program,
                            const PointwiseNode& node,
                            const std::vector<int>& operands);
// Null where the op does not work on each element by itself.
PointwiseOf pointwise_of(const std::string& op);

}  // namespace lockstep::onnx
