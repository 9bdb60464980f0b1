#pragma once
// Newton-Schulz iterations (exec/optimizers/newton_schulz.h) by products with fixed bits: the
// result depends only on the matrix.

#include <cstddef>

#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep::cpu {

// Size of newton_schulz()'s workspace on compute_threads() threads, in bytes.
size_t newton_schulz_bytes(int64_t rows, int64_t columns);

// Orthogonalizes a matrix in place. `norm` is its Frobenius norm. The workspace is aligned to 64
// bytes.
void newton_schulz(float* matrix,  // (rows, columns)
                   const exec::NewtonSchulz& shape,
                   double norm,
                   void* workspace);

}  // namespace lockstep::cpu
