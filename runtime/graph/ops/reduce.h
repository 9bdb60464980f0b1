#pragma once
// reduce: y = the sum, mean, largest, smallest or product of x over some of its dimensions.
//   inputs  x; outputs y, of the type of x or f32, the reduced dimensions left out or of extent 1
// The gradient is made of `pointwise` and `reduce`:
//   sum, mean  d_y, divided by the count where it is a mean, in the shape of x
//   max, min   shared evenly among the elements that equal y, as torch.amax does
//   product    d_y times the product of the other elements, also where some are zero
// NaN passes, through max and min too.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;
class GradientBuilder;

enum class ReduceKind : uint8_t { kSum, kMean, kMax, kMin, kProduct };

struct ReduceAttributes {
  ReduceKind kind = ReduceKind::kSum;
  Shape x_shape;         // x as it is read
  uint32_t reduced = 0;  // bit d: dimension d of x_shape is
};

namespace ops {

// axes: from 0, or from -1 backwards; none of them twice. Without axes nothing is reduced.
// keep_dims: reduced dimensions stay, with extent 1.
TensorId reduce(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                ReduceKind kind,
                const std::vector<int>& axes,
                bool keep_dims);

}  // namespace ops

// For rules: appends the sum of d over the dimensions in which x, read as x_shape, was broadcast to
// the shape of d; returns it, the gradient of x.
TensorId append_broadcast_sum(GradientBuilder& builder,
                              const std::string& name,
                              TensorId d,
                              const Shape& x_shape,
                              TensorId x);

// Nested loops over some dimensions of x, of which adjacent ones are joined where x allows it.
struct ReduceDimensions {
  int rank = 0;       // at least one
  int64_t count = 1;  // product of the extents
  int64_t extents[Shape::kMaxRank];
  int64_t strides[Shape::kMaxRank];  // elements of x from one step to the next

  LOCKSTEP_HD int64_t offset(int64_t index) const {
    int64_t sum = 0;
    for (int d = rank - 1; d > 0; --d) {
      const int64_t outer = index / extents[d];
      sum += (index - outer * extents[d]) * strides[d];
      index = outer;
    }
    return sum + index * strides[0];
  }
};

// Element i of y is over the elements of x at kept.offset(i) + reduced.offset(r).
struct ReduceLoops {
  ReduceDimensions kept, reduced;

  static ReduceLoops of(const Shape& x, uint32_t reduced);
  // Whether elements that are reduced together follow each other; else those do of which none are,
  // or there is only one.
  bool by_rows() const { return reduced.strides[reduced.rank - 1] == 1 && reduced.count > 1; }
};

template <typename T>
struct ReduceForward {
  ReduceKind kind;
  ReduceLoops loops;
  const T* x;
  void* y;  // (loops.kept.count) T, or Wide<T> where `wide`
  bool wide;
  Wide<T>* workspace;  // as the implementation needs

  static ReduceForward of(const OpCall& op) {
    const auto& attributes = op.attributes<ReduceAttributes>();
    return {.kind = attributes.kind,
            .loops = ReduceLoops::of(attributes.x_shape, attributes.reduced),
            .x = op.input<T>(0),
            .y = op.output<std::byte>(0),
            .wide = op.output_dtype(0) == DType::kF32,
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep
