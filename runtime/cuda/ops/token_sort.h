#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/plan/token_sort.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Sorts n ids, each in [0, vocabulary), in ascending order. positions[i] is the original position
// of the i-th of them, ascending among equal ids. Used for the gradient of an embedding.
void sort_tokens(const int32_t* ids,  // (n)
                 int64_t n,
                 int64_t vocabulary,
                 int32_t* sorted_ids,   // (n)
                 int32_t* positions,    // (n)
                 std::byte* workspace,  // sort_tokens_workspace_bytes(n)
                 Stream stream);

}  // namespace lockstep::cuda
