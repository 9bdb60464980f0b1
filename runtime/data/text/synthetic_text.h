#pragma once
// Synthetic texts for language models that are not causal.

#include "runtime/data/dataset.h"

namespace lockstep::data {

// Samples (4, T) i32 as in text_samples.h, a pure function of (seed, index). A text has 1 to T
// tokens. If the model has segments, the part from a random position on has segment 1. What a model
// can learn from them depends on its task:
// - masked tokens: the next token is usually a fixed function of the last; one in seven is replaced
//   by the vocabulary's last token;
// - classes of texts: half of the tokens equal the label modulo the number of classes;
// - values: each is the share of the text's tokens that are in a fixed random half of the
//   vocabulary, scaled to [-1, 1];
// - classes of tokens: each token has a fixed random class.
// At most 4,096 samples and about 64 MiB are generated; larger indices repeat them. There is no
// evaluation set.
OpenedData make_synthetic_text(const SyntheticConfig& synthetic,
                               const config::ModelTraits& model,
                               uint64_t seed,
                               bool need_train);

}  // namespace lockstep::data
