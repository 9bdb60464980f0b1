#pragma once
// Chooses the next token, given the logits of a language model.

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::generate {

struct SamplingOptions {
  double temperature = 1;  // divides the logits; 0: always the likeliest token
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  double top_p = 1;        // only the likeliest tokens whose probabilities reach this sum
  // Penalty on tokens that the sequence already has: logits above 0 are divided by it, others
  // multiplied (Keskar et al. 2019).
  double repetition_penalty = 1;
  uint64_t seed = 1;
};

// Applies the options in the order of the transformers library: penalty, temperature, top k, top p.
// If tokens are equally likely, the one with the lower index counts as likelier. The result is a
// function of seed, sequence, position and logits. Not thread-safe.
class TokenSampler {
 public:
  TokenSampler(const SamplingOptions& options, int64_t vocabulary);

  // logits: (vocabulary). `before`: the tokens of the sequence so far, each below vocabulary.
  // `sequence` and `position` select the random number.
  int32_t sample(const float* logits,
                 std::span<const int32_t> before,
                 uint32_t sequence,
                 uint32_t position);

 private:
  // Sorts order_ by the logits. Returns how many of its first tokens may be drawn, and computes
  // their weights and the weights' sum.
  size_t keep_likely(double* total);

  const SamplingOptions options_;
  std::vector<float> logits_;    // (vocabulary), with penalties
  std::vector<int32_t> order_;   // (vocabulary), the likeliest tokens first
  std::vector<double> weights_;  // (vocabulary)
};

}  // namespace lockstep::generate
