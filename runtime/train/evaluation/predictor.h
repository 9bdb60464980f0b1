#pragma once
// A network's outputs on the evaluation data.

#include <vector>

#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep {

// The outputs of an inference graph, one row for each sample of the evaluation set: what a network
// gives before its loss.
class Predictor {
 public:
  Predictor(const RunParts& parts, const RunMemory& memory);
  // Outputs of a sample.
  int64_t columns() const { return columns_; }
  int64_t samples() const { return pass_.samples(); }
  // (samples, columns) in stored order on rank 0, nothing on the others. All ranks together.
  std::vector<float> run();

 private:
  const RunParts& parts_;
  EvaluationPass pass_;
  int64_t rows_;  // of a lane's batch
  int64_t columns_;
  DType dtype_;
};

}  // namespace lockstep
