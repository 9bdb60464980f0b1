#pragma once
// Newton-Schulz iterations (exec/optimizers/newton_schulz.h) by products with fixed bits: the result
// depends on nothing but the matrix.

#include <cstddef>

#include "runtime/exec/optimizers/newton_schulz.h"

namespace lockstep::cpu {

// What newton_schulz() works in, on compute_threads() threads.
size_t newton_schulz_bytes(int64_t rows, int64_t columns);

// Makes a matrix orthogonal, in place. `norm` is its own. The workspace is aligned to 64 bytes.
void newton_schulz(float* matrix,  // (rows, columns)
                   const NewtonSchulz& shape,
                   double norm,
                   void* workspace);

}  // namespace lockstep::cpu
