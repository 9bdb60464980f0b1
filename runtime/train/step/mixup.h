#pragma once
// The mixing weights of mixup (Zhang et al. 2018, "mixup: Beyond Empirical Risk Minimization").

#include <cstdint>

namespace lockstep::train {

// A sample's weight in its mixture: max(b, 1 - b), where b ~ Beta(alpha, alpha) is a pure function
// of seed, step and lane; alpha > 0. It lies in [0.5, 1], and is 1 if the rest is below the
// precision of a float. Row i mixes with row n - 1 - i, so b and 1 - b give the same batch in
// reverse order. Taking the larger loses nothing, and a row's own target remains the one to
// predict.
float draw_mix(float alpha, uint64_t seed, uint32_t step, uint32_t lane);

}  // namespace lockstep::train
