#pragma once
// An image network for the self-test, with what no model uses: groups, dilation, non-square
// windows, averages that count only existing pixels.

#include <cstdint>

#include "runtime/graph/builder.h"

namespace lockstep::launcher {

inline constexpr int64_t kImagesClasses = 7;

// For `lane_batch` images of 27 x 25 x 3. With a backward pass if the purpose is training.
graph::Graph images_graph(int64_t lane_batch, const graph::GraphOptions& options);

}  // namespace lockstep::launcher
