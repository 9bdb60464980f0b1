#pragma once
// Indices of elements that are known at bind time.

#include <algorithm>
#include <utility>

#include "models/onnx/nodes/node_view.h"

namespace lockstep::onnx {

// The index, counted from the end if it is below 0. Rejects an index outside of the axis.
inline int64_t checked_index(const NodeView& node, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent)
    node.refuse("index {} of an axis of extent {}; must be within {} and {}",
                index,
                extent,
                -extent,
                extent - 1);
  return index < 0 ? index + extent : index;
}

// Builds an array from elements of another one.
class Picker {
 public:
  Picker(const Array& from, Extents to)
      : from_(from), bytes_(size_of(from.type)), made_(make_array(from.type, std::move(to))) {}
  // Appends `count` elements, from `offset` on.
  void pick(int64_t offset, int64_t count = 1) {
    const size_t length = static_cast<size_t>(count) * bytes_;
    std::copy_n(from_.data.get() + static_cast<size_t>(offset) * bytes_, length, made_.data + at_);
    at_ += length;
  }
  Array array() const { return made_.array; }

 private:
  const Array& from_;
  size_t bytes_;
  NewArray made_;
  size_t at_ = 0;
};

}  // namespace lockstep::onnx
