#pragma once
// Plain text as bytes: every byte is a token, the vocabulary is 256.

#include <cstdint>

#include "runtime/data/dataset.h"

namespace lockstep {

// Samples as in sequence.h, shifted from epoch to epoch when shuffling. Without a file of its own
// the evaluation set is the last eval_fraction of the training file.
OpenedData open_text(const DataConfig& config,
                     const TextConfig& text,
                     const ModelTraits& model,
                     uint64_t seed,
                     bool need_train);

}  // namespace lockstep
