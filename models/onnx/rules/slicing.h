#pragma once
// Which elements Slice, Split and Pad take along each axis.

#include <string>
#include <vector>

#include "models/onnx/rules/node_view.h"

namespace lockstep::onnx {

// Along one axis: `count` elements from `start` on, each `step` after the one before.
struct Cut {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

// What a Slice takes, by axis.
std::vector<Cut> cuts_of(const NodeView& node);
// The parts of a Split along its axis, which has this extent.
std::vector<int64_t> parts_of(const NodeView& node, int64_t extent);
// What a Pad adds: elements before each axis, then after each.
std::vector<int64_t> pads_of(const NodeView& node);
// Where an element `at` (below 0 or beyond for what is added) comes from; -1: the constant.
int64_t pad_source(const std::string& mode, int64_t at, int64_t extent);

}  // namespace lockstep::onnx
