#pragma once
// Parses the equation of the op Einsum.

#include <string>
#include <vector>

#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

// One term: the letters before `...`, whether there is a `...`, and the letters after it.
struct EinsumTerm {
  std::string before;
  bool ellipsis = false;
  std::string after;
};

struct Einsum {
  std::vector<EinsumTerm> inputs;
  EinsumTerm output;
};

// Parses the node's equation. If it has no output, NumPy's default is used: `...` and all letters
// that occur once, in alphabetical order. Rejects invalid equations.
Einsum parse_einsum(const NodeView& node);

}  // namespace lockstep::onnx
