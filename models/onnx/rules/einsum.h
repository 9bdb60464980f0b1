#pragma once
// The equation of the op Einsum.

#include <string>
#include <vector>

#include "models/onnx/rules/node_view.h"

namespace lockstep::onnx {

// One term: letters, and where `...` stands among them.
struct EinsumTerm {
  std::string before;
  bool ellipsis = false;
  std::string after;
};

struct Einsum {
  std::vector<EinsumTerm> inputs;
  EinsumTerm output;
};

// The node's equation; where it has no output, the one that NumPy gives it: `...` and all letters that
// stand once, in alphabetical order. Refuses what is no equation.
Einsum parse_einsum(const NodeView& node);

}  // namespace lockstep::onnx
