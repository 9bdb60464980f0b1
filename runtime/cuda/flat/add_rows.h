#pragma once
// Rows that are added to rows of a table, on the GPU.

#include "collectives/layout/row_layout.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// See SliceMath::add_rows(). Rows of floats give the same bits as cpu::add_rows.
void add_rows(
    const collectives::AddedRows& rows, int64_t begin, int64_t end, float* to, Stream stream);

}  // namespace lockstep::cuda
