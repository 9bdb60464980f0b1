#pragma once
// The order of a convolution's parameters: channels last in memory, channels first in files, as
// other programs expect. Two spatial axes: (O, H, W, C) in memory, (O, C, H, W) in the file. One
// axis: (O, L, C) and (O, C, L). Three axes: (O, H, W, D, C) and (O, C, D, H, W).

#include <vector>

#include "runtime/checkpoint/format/state.h"

namespace lockstep::checkpoint {

// The extents of the parameter in a file.
std::vector<int64_t> file_extents(const NamedSlice& slice);

// Whether the order of the elements differs between memory and file, and not only the extents.
bool is_reordered(const NamedSlice& slice);

// Copies a parameter that is_reordered() from memory order to file order, and back. The buffers
// must not overlap.
void to_file_order(const NamedSlice& slice, const float* memory, float* file);
void from_file_order(const NamedSlice& slice, const float* file, float* memory);

}  // namespace lockstep::checkpoint
