#pragma once
// Adafactor's work on matrices: see exec/optimizers/adafactor.h and Backend.

#include "runtime/exec/optimizers/adafactor.h"

namespace lockstep::cpu {

void add_factored_squares(const exec::FactoredPiece& piece, const exec::FactoredStep& step);
void factored_directions(const exec::FactoredPiece& piece, const exec::FactoredStep& step);

}  // namespace lockstep::cpu
