#pragma once
// The elements that Slice, Split and Pad take along each axis.

#include <string>
#include <vector>

#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

// Along one axis: `count` elements, beginning at `start`, with distance `step`.
struct Cut {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// The cut of a Slice along each axis.
std::vector<Cut> cuts_of(const NodeView& node);
// The lengths of the parts of a Split along its axis, which has this extent.
std::vector<int64_t> parts_of(const NodeView& node, int64_t extent);
// The numbers of elements that a Pad adds: before each axis, then after each axis.
std::vector<int64_t> pads_of(const NodeView& node);
// The index of the element that a Pad copies to `index`, which is below 0 or not below `extent` for
// added elements. -1: the constant.
int64_t pad_source(const std::string& mode, int64_t index, int64_t extent);

}  // namespace lockstep::onnx
