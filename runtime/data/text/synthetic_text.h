#pragma once
// Samples of the synthetic data for models of text that are no causal language models.

#include "runtime/data/dataset.h"

namespace lockstep {

// A pure function of (seed, index): texts of 1 to T tokens, of which a second part, from a random
// place on, has segment 1 where the model has such. Samples are as in text_samples.h. What can be
// learnt of them:
// - masked tokens: the next token is mostly a fixed function of the last; one in seven is hidden by
//   the vocabulary's last token;
// - classes of texts: half of the tokens are those of the label (equal to it modulo the classes);
// - values: of each a fixed random half of the tokens, of which the share in the text counts;
// - classes of tokens: a fixed random class of each.
// At most 4,096 samples and about 64 MiB are made; larger indices repeat them. No evaluation set.
OpenedData make_synthetic_text(const SyntheticConfig& synthetic,
                               const ModelTraits& model,
                               uint64_t seed,
                               bool need_train);

}  // namespace lockstep
