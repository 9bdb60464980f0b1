#pragma once
// Samples for masked language modelling (Devlin et al., "BERT", 2018): some tokens are hidden, and
// the model predicts them.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/tokenizer/tokenizer.h"

namespace lockstep::data {

struct Masking {
  float share = 0.15f;        // probability that a token is chosen, in (0, 1)
  int32_t mask_token = 0;     // replaces chosen tokens
  std::vector<bool> special;  // (vocabulary) special tokens, which are never chosen
  uint64_t seed = 0;
};

// Masking with a tokenizer's [MASK] or <mask> and its special tokens. `field`: the config field of
// the tokenizer, for messages. Throws ConfigError if it has no such token.
Masking masking_of(const tokenizer::Tokenizer& tokenizer,
                   const std::string& field,
                   float share,
                   uint64_t seed);

// Makes samples (4, T) i32 as in text_samples.h from those of `tokens`, (T) or (3, T) i32. Targets
// (T) i32 are the chosen tokens, and -1 elsewhere. Each token is chosen with probability `share`,
// but at least one in a sample; special tokens and padding never are. Of the chosen tokens, 80%
// become mask_token, 10% a random token, and 10% stay. All of it is a pure function of (seed,
// epoch, sample, position). In reads that are not augmented, it depends on (sample, position)
// alone, so that runs with different seeds are evaluated on the same samples.
std::unique_ptr<Dataset> mask_tokens(std::unique_ptr<Dataset> tokens,
                                     std::shared_ptr<const Masking> masking,
                                     const config::ModelTraits& model);

}  // namespace lockstep::data
