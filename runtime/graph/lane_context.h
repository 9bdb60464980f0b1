#pragma once
// What ops know about the lane for which they run.

#include <cstdint>

namespace lockstep::graph {

// Which lane of which step runs, and which part of its batch counts.
struct LaneContext {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t lane = 0;
  int64_t valid_rows = 0;  // rows of the loss from this index on are padding
  // Index of the first row's sample: in the global batch, or in the evaluation set.
  int64_t first_sample = 0;
  float gradient_scale = 1;  // multiplies the gradient of the loss sum
  // Mixup: among the valid rows, row i becomes `mix` times itself plus 1 - mix times row valid_rows
  // - 1 - i. Rows are images in image_normalize, and targets in softmax cross-entropy. 1: no mixup.
  float mix = 1;
};

}  // namespace lockstep::graph
