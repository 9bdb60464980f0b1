#pragma once
// Sums over the rows of a matrix, in an order that depends on its shape and, in column_sum(), on
// the GPU's number of multiprocessors.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/context.h"
#include "runtime/cuda/plan/column_sum.h"
#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// out[c] = or += the sum over p of partials[p, c], in the order of p within 32 interleaved groups,
// then over the groups. If `second_out` is set, the same for a second matrix after the first.
void sum_partials(const float* partials,  // (count, columns), or (2, count, columns)
                  int64_t count,
                  int64_t columns,
                  bool accumulate,
                  float* out,         // (columns); null: not wanted
                  float* second_out,  // (columns) or null
                  Stream stream);

// out[c] = or += the sum over r of x[r, c]: the gradient of a bias. T is float, BFloat16 or
// Float16.
template <typename T>
void column_sum(const T* x,  // (rows, stride)
                int64_t rows,
                int64_t columns,
                int64_t stride,  // elements between rows, at least `columns`
                bool accumulate,
                float* out,        // (columns)
                float* workspace,  // column_sum_workspace_bytes(rows, columns)
                const LaunchContext& context);

}  // namespace lockstep::cuda
