#pragma once

#include <cstdint>

namespace lockstep {

// Index of a tensor in its graph.
using TensorId = int32_t;
inline constexpr TensorId kNoTensor = -1;

namespace graph::ops {}

// Networks are written as ops::linear(builder, ...).
namespace ops = graph::ops;

}  // namespace lockstep
