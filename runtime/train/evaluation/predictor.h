#pragma once
// A network's outputs on the evaluation data.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep::train {

// Outputs and targets of samples, in stored order. A row is a sample or, if the network has outputs
// for each token, a token.
struct Predictions {
  int64_t samples = 0;
  int64_t tokens = 0;                // of a sample; 0 if the outputs belong to the whole sample
  int64_t columns = 0;               // outputs of a row
  std::vector<float> outputs = {};   // (rows, columns) before softmax or sigmoid, 0 for padding
  std::vector<int32_t> labels = {};  // (rows) classes, -1: none; or empty
  std::vector<float> values = {};    // (rows, columns) NaN: none; or empty

  int64_t rows() const { return samples * std::max<int64_t>(tokens, 1); }
};

// The outputs of an inference graph (before the loss) for each sample of the evaluation set, or for
// each of its tokens. Values are in the units of the data's file.
class Predictor {
 public:
  // with_targets: also returns the samples' labels or values.
  Predictor(const RunContext& context, const RunMemory& memory, bool with_targets);
  // Outputs and targets are empty on ranks other than 0. Collective.
  Predictions run();

 private:
  int64_t output_elements() const { return std::max<int64_t>(tokens_, 1) * columns_; }
  void clear_sample(std::span<float> elements) const;
  void clear_padding(std::vector<float>& outputs) const;

  const RunContext& context_;
  EvaluationPass pass_;
  int64_t tokens_;
  int64_t columns_;
  int64_t targets_ = 0;  // elements of a sample's target, of the first of several
  int64_t record_ = 0;   // elements of all targets of a sample
  bool labels_ = false;  // whether targets_ are class labels
  DType dtype_;
};

}  // namespace lockstep::train
