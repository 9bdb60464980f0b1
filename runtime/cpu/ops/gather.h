#pragma once
// The parts of the op gather that other ops use.

#include "runtime/graph/ops/gather.h"

namespace lockstep::cpu {

// T: float, or BFloat16 for elements of two bytes.
template <typename T>
void gather_forward(const graph::GatherForward<T>& op);

// d_x += the slices of d_y, in the order of their indices. A sum belongs to one thread, which adds
// its terms in order.
void add_slices(const graph::GatherBackward<float>& op);

}  // namespace lockstep::cpu
