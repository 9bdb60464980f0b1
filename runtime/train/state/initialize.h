#pragma once
// Initial weights, and their names in checkpoints.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/format/state.h"
#include "runtime/plan/plan.h"

namespace lockstep::train {

// Fills the flat parameter buffer: each parameter from its initializer and its own random stream,
// so that the values depend only on the seed and the model. Padding is not touched.
void initialize_parameters(const plan::ParameterLayout& layout, uint64_t seed, float* parameters);

// The same, but only for parameters that are initialized whatever weights were read
// (Initializer::overrides_weights).
void initialize_overrides(const plan::ParameterLayout& layout, uint64_t seed, float* parameters);

// The layout, with parameters named as in checkpoints.
std::vector<checkpoint::NamedSlice> named_slices(const plan::ParameterLayout& layout);

}  // namespace lockstep::train
