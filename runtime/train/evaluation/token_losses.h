#pragma once
// What a language model makes of each token of the evaluation data.

#include <cstdint>
#include <vector>

#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep {

// A document of a sample, or the whole sample where it has none.
struct DocumentLoss {
  int64_t sample = 0;
  int64_t document = 0;  // in the sample, from 0
  int64_t counted = 0;   // tokens that are predicted
  double loss = 0;       // the sum of their losses
};

// Runs an inference graph that ends in logits (B, T, V), and takes the loss of each token that
// counts: the logarithm of the sum of e^logit less the target's logit, in double precision.
class TokenLosses {
 public:
  TokenLosses(const RunParts& parts, const RunMemory& memory);

  int64_t samples() const { return pass_.samples(); }
  int64_t tokens() const { return tokens_; }  // T
  // (samples, T) in stored order on rank 0, nothing on the others; 0 where no token counts. All ranks
  // together.
  std::vector<float> run();
  // Of what run() gave, in the order of samples and documents.
  std::vector<DocumentLoss> by_document(const std::vector<float>& losses) const;

 private:
  // Of the samples that a lane has run on: (B, T), from number `first` on.
  void add_lane(int64_t first, int64_t valid, float* losses);

  const RunParts& parts_;
  EvaluationPass pass_;
  int64_t lane_batch_, tokens_, vocabulary_, stride_;
  DType dtype_;
  mutable std::vector<std::byte> input_, target_;  // a sample
};

}  // namespace lockstep
