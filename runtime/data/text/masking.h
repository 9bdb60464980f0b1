#pragma once
// Samples for masked language modelling (Devlin et al., "BERT", 2018): some tokens are hidden, and are
// the targets.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep {

struct Masking {
  float share = 0.15f;        // of the tokens that are not special, in (0, 1)
  int32_t mask_token = 0;     // what hides
  std::vector<bool> special;  // of each token: never hidden; as many as random ones are drawn from
  uint64_t seed = 0;
};

// What data.tokens says of a tokenizer, whose `field` of the config names it. Throws ConfigError where
// it has no [MASK] or <mask>.
Masking masking_of(const Tokenizer& tokenizer,
                   const std::string& field,
                   float share,
                   uint64_t seed);

// Samples (4, T) i32 as in text_samples.h of those of `tokens`, (T) or (3, T) i32; targets (T) i32 the
// tokens that were chosen, -1 elsewhere. Each is chosen with the probability `share`, and of a sample
// at least one; of those chosen 80% become mask_token, 10% a random token, 10% stay. What happens to a
// token is a pure function of (seed, epoch, sample, place); in reads that are not augmented of (sample,
// place) alone, so that runs of other seeds are evaluated on the same. Special tokens and padding are
// never chosen.
std::unique_ptr<Dataset> mask_tokens(std::unique_ptr<Dataset> tokens,
                                     std::shared_ptr<const Masking> masking,
                                     const ModelTraits& model);

}  // namespace lockstep
