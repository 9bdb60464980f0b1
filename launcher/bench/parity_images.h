#pragma once
// A network on images for the self-test, with what no model has: groups, dilation, windows of
// unequal sides, an average over the pixels that there are.

#include <cstdint>

#include "runtime/graph/builder.h"

namespace lockstep {

inline constexpr int64_t kImagesClasses = 7;

// Of `lane_batch` images of 27 x 25 x 3; differentiated where it is for training.
Graph images_graph(int64_t lane_batch, const GraphOptions& options);

}  // namespace lockstep
