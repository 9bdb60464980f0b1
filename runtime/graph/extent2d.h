#pragma once

#include <cstdint>

namespace lockstep::graph {

// Two extents of an image, or of a window that slides over it.
struct Extent2d {
  int64_t height = 1, width = 1;
  bool operator==(const Extent2d&) const = default;
};

}  // namespace lockstep::graph
