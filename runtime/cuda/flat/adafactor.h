#pragma once
// Adafactor's work on matrices: see exec/optimizers/adafactor.h and Backend.

#include "runtime/cuda/stream.h"
#include "runtime/exec/optimizers/adafactor.h"

namespace lockstep::cuda {

// `step`, and everything that the piece points to, is in device memory. The bits are those of
// cpu::add_factored_squares.
void add_factored_squares(const exec::FactoredPiece& piece,
                          const exec::FactoredStep* step,
                          Stream stream);
void factored_directions(const exec::FactoredPiece& piece,
                         const exec::FactoredStep* step,
                         Stream stream);

}  // namespace lockstep::cuda
