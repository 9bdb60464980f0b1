#pragma once
// gather: y consists of the slices of x along a dimension that indices select, as numpy.take:
//   y[o, i, c] = x[o, indices[i], c], with o and c for the dimensions before and after.
// gather_elements: an index for each element of y, as torch.gather:
//   y[o, i, c] = x[o, indices[o, i, c], c]
// x has floats, or i32, which have no gradient; it is no parameter. A negative index counts from
// the end. Kernels cannot report an index out of range: it is clamped, and its gradient goes to the
// clamped index.
// gather_backward, gather_elements_backward: d_x, the sums of d_y over equal indices in their
// order; zero for elements that no index selects.

#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

// Of both kinds.
enum class GatherIn : InputIndex { kX, kIndices };
enum class GatherOut : OutputIndex { kY };
enum class GatherBackwardIn : InputIndex { kDY, kIndices };
enum class GatherBackwardOut : OutputIndex { kDX };

// x is (outer, extent, inner), y (outer, count, inner).
struct GatherSizes {
  int64_t outer = 1, extent = 1, inner = 1, count = 1;
};

namespace ops {

// x (..., E, ...), indices of any extents -> (..., the indices' extents, ...), in place of
// dimension `axis`. A negative axis counts from the last one.
TensorId gather(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId indices, int axis);

// indices have the extents of x, except along dimension `axis`, and y has those of indices.
TensorId gather_elements(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId indices, int axis);

}  // namespace ops

// The element that an index selects, of `extent` elements.
LOCKSTEP_HD int64_t gathered_index(int32_t index, int64_t extent) {
  const int64_t from_start = index < 0 ? index + extent : index;
  return from_start < 0 ? 0 : from_start < extent ? from_start : extent - 1;
}

// For both kinds: indices are (count) or, in gather_elements, (outer, count, inner).
template <typename T>
struct GatherForward {
  const OpCall& call = OpCall::none();
  GatherSizes sizes = call.attributes<GatherSizes>();
  const T* x = call.input<T>(GatherIn::kX);  // (outer, extent, inner)
  const int32_t* indices = call.input<int32_t>(GatherIn::kIndices);
  T* y = call.output<T>(GatherOut::kY);  // (outer, count, inner)
};

template <typename T>
struct GatherBackward {
  const OpCall& call = OpCall::none();
  GatherSizes sizes = call.attributes<GatherSizes>();
  const T* d_y = call.input<T>(GatherBackwardIn::kDY);  // (outer, count, inner)
  const int32_t* indices = call.input<int32_t>(GatherBackwardIn::kIndices);
  T* d_x = call.output<T>(GatherBackwardOut::kDX);  // (outer, extent, inner)
  std::byte* workspace = call.workspace();          // as the implementation needs
};

}  // namespace lockstep::graph
