#pragma once
// Which token follows, given the logits of a language model.

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0: the likeliest token
  int64_t top_k = 0;       // only the k likeliest tokens; 0: all
  double top_p = 1;        // only the likeliest that come to this share together
  double repetition_penalty =
      1;  // tokens that are there already: logits above 0 are divided by it,
          // others multiplied (Keskar et al. 2019)
  uint64_t seed = 1;
};

// In the order of transformers: penalty, temperature, top k, top p. Of equally likely tokens the
// first one counts as likelier. What is drawn is a function of seed, sequence, place and logits. Of
// one thread.
class TokenSampler {
 public:
  TokenSampler(const SamplingOptions& options, int64_t vocabulary);

  // logits: (vocabulary). `before`: the tokens of the sequence so far, each below vocabulary.
  // `sequence` and `place` number what is drawn.
  int32_t sample(const float* logits,
                 std::span<const int32_t> before,
                 uint32_t sequence,
                 uint32_t place);

 private:
  // How many of order_, sorted by their logits, may be drawn; their weights and the sum of these.
  size_t keep_likely(double* total);

  const SamplingOptions options_;
  std::vector<float> logits_;    // (vocabulary), with penalties
  std::vector<int32_t> order_;   // (vocabulary), the first ones are the likeliest
  std::vector<double> weights_;  // (vocabulary)
};

}  // namespace lockstep
