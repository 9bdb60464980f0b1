#pragma once
// The weights of a network that is run but not trained, in the backend's memory.

#include <cstddef>
#include <functional>
#include <vector>

#include "runtime/checkpoint/format/state.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/layout.h"

namespace lockstep::generate {

// Fills the parameters of the slices in a flat fp32 buffer.
using ReadWeights =
    std::function<void(const std::vector<checkpoint::NamedSlice>& slices, float* flat)>;

// Bytes of the flat buffer in the layout's compute type.
size_t weight_bytes(const plan::ParameterLayout& layout);

// Allocates that buffer and fills it. Weights of 16 bits are rounded from floats, which are in
// memory only meanwhile.
std::byte* allocate_weights(exec::Backend& backend,
                            const plan::ParameterLayout& layout,
                            const ReadWeights& read);

}  // namespace lockstep::generate
