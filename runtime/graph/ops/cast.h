#pragma once
// cast: y = x in the graph's compute type. For inputs of the graph and parts of targets; it has no
// gradient.

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class CastIn : InputIndex { kX };
enum class CastOut : OutputIndex { kY };

namespace ops {

// x in the graph's compute type; x itself if it already has that type. Gradients do not flow
// through it.
TensorId cast(GraphBuilder& builder, const std::string& name, TensorId x);

}  // namespace ops
}  // namespace lockstep::graph
