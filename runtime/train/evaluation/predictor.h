#pragma once
// A network's outputs on the evaluation data.

#include <algorithm>
#include <vector>

#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep::train {

// The outputs of an inference graph (before the loss) for each sample of the evaluation set, or for
// each of its tokens. The outputs of padding are zeros.
class Predictor {
 public:
  Predictor(const RunContext& context, const RunMemory& memory);
  // Number of outputs of a sample, or of each of its tokens.
  int64_t columns() const { return columns_; }
  // Tokens of a sample; 0 if the outputs belong to the whole sample.
  int64_t tokens() const { return tokens_; }
  int64_t samples() const { return pass_.samples(); }
  // Returns (samples, columns) or (samples, tokens, columns) in stored order on rank 0, and nothing
  // on the other ranks. Collective.
  std::vector<float> run();

 private:
  const RunContext& context_;
  EvaluationPass pass_;
  void clear_padding(std::vector<float>& outputs) const;

  int64_t sample_elements() const { return std::max<int64_t>(tokens_, 1) * columns_; }

  int64_t tokens_;
  int64_t columns_;
  DType dtype_;
};

}  // namespace lockstep::train
