#pragma once
// The shares of mixup (Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization").

#include <cstdint>

namespace lockstep {

// A sample's own share in what it is mixed to: max(b, 1 - b), where b ~ Beta(alpha, alpha) is a
// pure function of seed, step and lane; alpha > 0. In [0.5, 1], and 1 where the rest is less than a
// float can tell. Row i mixes with row n - 1 - i, so b and 1 - b give the same batch in opposite
// order: taking the larger loses nothing, and a row's own target stays the one to predict.
float draw_mix(float alpha, uint64_t seed, uint32_t step, uint32_t lane);

}  // namespace lockstep
