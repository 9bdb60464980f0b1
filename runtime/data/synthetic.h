#pragma once
// Synthetic data for benchmarks: costs nothing to read, yet can be learnt, so a falling loss still
// shows that a run works.

#include <cstdint>

#include "runtime/data/dataset.h"

namespace lockstep {

// A pure function of (seed, index), the same on every machine (no library mathematics is used):
// - Features with softmax: label () i32 uniform; x (F) f32 is the label's random sign vector plus noise,
//   scaled to about unit variance.
// - Features with other losses: x about N(0, 1); target (O) f32 a fixed random linear map of x, or
//   whether that is positive for binary cross-entropy (0 or 1).
// - Tokens: mostly the next token is a fixed function of the last (times a, plus b, modulo the
//   vocabulary); one in eight is random.
// Where the model gives outputs or a vocabulary, they count, else synthetic.classes.
// At most 4,096 samples and about 64 MiB are generated; larger indices repeat them. No evaluation
// set.
OpenedData open_synthetic(const SyntheticConfig& synthetic,
                          const ModelTraits& model,
                          uint64_t seed,
                          bool need_train);

}  // namespace lockstep
