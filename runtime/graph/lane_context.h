#pragma once
// What ops know of the lane that they run for.

#include <cstdint>

namespace lockstep {

// Which lane of which step runs, and what of its batch counts.
struct LaneContext {
  uint64_t seed = 0;
  uint32_t step = 0;
  uint32_t lane = 0;
  int64_t valid_rows = 0;  // rows of the loss from this one on are padding
  // Number of the first row's sample: in the global batch, or of the evaluation set in its order.
  int64_t first_sample = 0;
  float gradient_scale = 1;  // multiplies the gradient of the loss sum
  // Mixup: row i of the valid ones becomes `mix` of itself and 1 - mix of row valid_rows - 1 - i,
  // in image_normalize (its images are the rows) and as softmax cross-entropy's target. 1: as it
  // is.
  float mix = 1;
};

}  // namespace lockstep
