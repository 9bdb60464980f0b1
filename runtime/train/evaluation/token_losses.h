#pragma once
// A language model's loss for each token of the evaluation data.

#include <cstdint>
#include <vector>

#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep::train {

// A document in a sample, or the whole sample if samples are not packed.
struct DocumentLoss {
  int64_t sample = 0;
  int64_t document = 0;  // index in the sample, from 0
  int64_t counted = 0;   // tokens that are predicted
  double loss = 0;       // the sum of their losses
};

// Runs an inference graph that ends in logits (B, T, V), and computes the loss of each token that
// counts: log(sum of e^logit) minus the target's logit, in double precision.
class TokenLosses {
 public:
  TokenLosses(const RunContext& context, const RunMemory& memory);

  int64_t samples() const { return pass_.samples(); }
  int64_t tokens() const { return tokens_; }  // T
  // Returns (samples, T) in stored order on rank 0, and nothing on the other ranks; 0 for tokens
  // that do not count. Collective.
  std::vector<float> run();
  // Sums up the result of run(), in the order of samples and documents.
  std::vector<DocumentLoss> by_document(const std::vector<float>& losses) const;

 private:
  // Computes the losses (B, T) of a lane's first `valid` samples, which are numbered from `first`.
  void add_lane(int64_t first, int64_t valid, float* losses);

  const RunContext& context_;
  EvaluationPass pass_;
  int64_t tokens_, vocabulary_, stride_;
  DType dtype_;
  mutable std::vector<std::byte> input_, target_;  // one sample
};

}  // namespace lockstep::train
