#pragma once
// Initial weights, and their names in checkpoints.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/state.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// Fills the flat parameter buffer: each parameter from its initializer and its own random stream,
// so that the values depend on the seed and the model alone. Padding is left as it is.
void initialize_parameters(const ParameterLayout& layout, uint64_t seed, float* parameters);

// The same, but only for what begins anew whatever weights were read (Initializer::anew).
void initialize_anew(const ParameterLayout& layout, uint64_t seed, float* parameters);

// The layout as checkpoints name it.
std::vector<NamedSlice> named_slices(const ParameterLayout& layout);

}  // namespace lockstep
