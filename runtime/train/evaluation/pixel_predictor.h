#pragma once
// The predicted classes of the pixels of the evaluation data.

#include <cstdint>
#include <functional>
#include <span>

#include "runtime/train/evaluation/evaluation_pass.h"

namespace lockstep::train {

// Takes a pass over the evaluation data with an inference graph (before the loss) whose outputs are
// (N, H, W, classes).
class PixelPredictor {
 public:
  PixelPredictor(const RunContext& context, const RunMemory& memory);

  // One sample, (H, W) each. A class is below 0 if it is not known: of all pixels of a record that
  // cannot be read, and of targets that do not count or are not there.
  struct Sample {
    int64_t index = 0;
    std::span<const int32_t> predicted, targets;
  };

  int64_t samples() const { return pass_.samples(); }
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  int64_t classes() const { return classes_; }
  // On rank 0 calls `take` for every sample, in stored order. Collective.
  void run(const std::function<void(const Sample& sample)>& take);

 private:
  const RunContext& context_;
  EvaluationPass pass_;
  int64_t height_, width_, classes_;
  DType dtype_;
};

}  // namespace lockstep::train
