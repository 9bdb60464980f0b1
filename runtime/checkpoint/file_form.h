#pragma once
// Parameters of images lie channels last in memory and channels first in files, where everybody
// expects them so: (O, H, W, C) and (O, C, H, W). Of one axis they are (O, L, C) and (O, C, L), of three
// (O, H, W, D, C) and (O, C, D, H, W).

#include <vector>

#include "runtime/checkpoint/state.h"

namespace lockstep {

// The extents of the parameter in files.
std::vector<int64_t> file_extents(const NamedSlice& slice);

// Whether the order of the elements differs too.
bool is_reordered(const NamedSlice& slice);

// Copies a parameter that is_reordered() from memory to a file's order, and back. Neither overlaps
// the other.
void to_file_order(const NamedSlice& slice, const float* memory, float* file);
void from_file_order(const NamedSlice& slice, const float* file, float* memory);

}  // namespace lockstep
