#pragma once
// reduce: y = the sum, mean, maximum, minimum or product of x over some of its dimensions.
// y has the type of x or f32; reduced dimensions are dropped or of extent 1.
// The gradient consists of `pointwise` and `reduce` ops:
//   sum, mean  d_y, divided by the count for a mean, in the shape of x
//   max, min   divided evenly among the elements that equal y, as in torch.amax
//   product    d_y times the product of the other elements, even if some are zero
// NaN propagates, through max and min too.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class ReduceIn : InputIndex { kX };
enum class ReduceOut : OutputIndex { kY };

enum class ReduceKind : uint8_t { kSum, kMean, kMax, kMin, kProduct };

struct ReduceAttributes {
  ReduceKind kind = ReduceKind::kSum;
  Shape x_shape;         // the extents with which x is read
  uint32_t reduced = 0;  // bit d: dimension d of x_shape is reduced
};

namespace ops {

// axes: from 0, or from -1 backwards; each at most once. Without axes nothing is reduced.
// keep_dims: reduced dimensions stay, with extent 1.
TensorId reduce(GraphBuilder& builder,
                const std::string& name,
                TensorId x,
                ReduceKind kind,
                const std::vector<int>& axes,
                bool keep_dims);

}  // namespace ops

// For backward rules: appends the sum of d over the dimensions in which x, read as x_shape, was
// broadcast to the shape of d. Returns the sum, which is the gradient of x.
TensorId append_broadcast_sum(GradientBuilder& builder,
                              const std::string& name,
                              TensorId d,
                              const Shape& x_shape,
                              TensorId x);

// Nested loops over some dimensions of x; adjacent ones are merged if x allows it.
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

// Element i of y reduces the elements of x at kept.offset(i) + reduced.offset(r), for all r.
struct ReduceLoops {
  ReduceDimensions kept, reduced;

  static ReduceLoops of(const Shape& x, uint32_t reduced);
  // Whether elements that are reduced together are adjacent. Otherwise elements of different
  // outputs are adjacent, or only one element is reduced.
  bool by_rows() const { return reduced.strides[reduced.rank - 1] == 1 && reduced.count > 1; }
};

template <typename T>
struct ReduceForward {
  const OpCall& call = OpCall::none();
  ReduceKind kind = call.attributes<ReduceAttributes>().kind;
  ReduceLoops loops = ReduceLoops::of(call.attributes<ReduceAttributes>().x_shape,
                                      call.attributes<ReduceAttributes>().reduced);
  const T* x = call.input<T>(ReduceIn::kX);
  void* y = call.output<std::byte>(ReduceOut::kY);  // (loops.kept.count) T, or Wide<T> if `wide`
  bool wide = call.output_dtype(ReduceOut::kY) == DType::kF32;
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

}  // namespace lockstep::graph
