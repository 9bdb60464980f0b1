#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/checkpoint/state.h"
#include "runtime/plan/plan.h"

namespace lockstep {

// Fills the flat parameter buffer: each parameter from its initializer and its own random stream,
// so that the values depend on the seed and the model alone. Padding is left as it is.
void initialize_parameters(const ParameterLayout& layout, uint64_t seed, float* parameters);

// The layout as checkpoints name it.
std::vector<NamedSlice> named_slices(const ParameterLayout& layout);

// XXH3-64 over all parameters in order of creation; padding and order of the flat buffer do not
// count.
uint64_t hash_parameters(const ParameterLayout& layout, const float* parameters);

// Name of the first parameter that holds an infinity or a NaN; empty when none does.
std::string first_not_finite(const ParameterLayout& layout, const float* parameters);

}  // namespace lockstep
