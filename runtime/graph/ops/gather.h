#pragma once
// gather: y is slices of x along a dimension, those that indices name, as numpy.take:
//   y[o, i, c] = x[o, indices[i], c], o and c standing for the dimensions before and after.
// gather_elements: an index for each element of y, as torch.gather:
//   y[o, i, c] = x[o, indices[o, i, c], c]
//   inputs  x, floats, or i32, which have no gradient; no parameter. indices i32. A negative index
//           counts from the end. One outside of the dimension, which a kernel cannot report, is read
//           as the nearest that is within; its gradient goes there too
//   outputs y
// gather_backward, gather_elements_backward: d_x, the sums of d_y over equal indices in their
// order, zero where there are none.
//   inputs d_y, indices; outputs d_x

#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

// x is (outer, extent, inner), y (outer, count, inner).
struct GatherSizes {
  int64_t outer = 1, extent = 1, inner = 1, count = 1;
};

namespace ops {

// x (..., E, ...), indices of any extents -> (..., the indices' extents, ...), in the place of
// dimension `axis`; a negative one counts from the last.
TensorId gather(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId indices, int axis);

// indices have the extents of x but for that of dimension `axis`, and so has y.
TensorId gather_elements(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId indices, int axis);

}  // namespace ops

// Which of `extent` elements an index means.
LOCKSTEP_HD int64_t gathered_index(int32_t index, int64_t extent) {
  const int64_t from_start = index < 0 ? index + extent : index;
  return from_start < 0 ? 0 : from_start < extent ? from_start : extent - 1;
}

// Of both kinds: indices are (count), or (outer, count, inner) of gather_elements.
template <typename T>
struct GatherForward {
  GatherSizes sizes;
  const T* x;  // (outer, extent, inner)
  const int32_t* indices;
  T* y;  // (outer, count, inner)

  static GatherForward of(const OpCall& op) {
    return {.sizes = op.attributes<GatherSizes>(),
            .x = op.input<T>(0),
            .indices = op.input<int32_t>(1),
            .y = op.output<T>(0)};
  }
};

template <typename T>
struct GatherBackward {
  GatherSizes sizes;
  const T* d_y;  // (outer, count, inner)
  const int32_t* indices;
  T* d_x;                // (outer, extent, inner)
  std::byte* workspace;  // as the implementation needs

  static GatherBackward of(const OpCall& op) {
    return {.sizes = op.attributes<GatherSizes>(),
            .d_y = op.input<T>(0),
            .indices = op.input<int32_t>(1),
            .d_x = op.output<T>(0),
            .workspace = op.workspace()};
  }
};

}  // namespace lockstep
