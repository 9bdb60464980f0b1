#pragma once
// concat: y is x_0, x_1, ... one after the other along one dimension.
// concat_backward: each d_x_k is its part of d_y.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

// x: 1 to 64 of one type, floats, or i32, which have no gradient; no parameters. y has that type.
enum class ConcatIn : InputIndex { kX };
enum class ConcatOut : OutputIndex { kY };
enum class ConcatBackwardIn : InputIndex { kDY };
enum class ConcatBackwardOut : OutputIndex { kDX };  // as many; none if no gradient is needed

inline constexpr int kMaxConcatInputs = 64;

// In rows: a row consists of the dimension `axis` and those after it.
struct ConcatAttributes {
  int64_t rows = 1;
  int count = 0;  // of inputs
  // in a row of y, the index after the last element of input k
  std::array<int64_t, kMaxConcatInputs> ends;

  int64_t columns() const { return ends[static_cast<size_t>(count - 1)]; }  // of y
};

namespace ops {

// Concatenates 1 to 64 tensors of one type, whose extents are equal except along `axis`. A negative
// axis counts from the last dimension.
TensorId concat(GraphBuilder& builder,
                const std::string& name,
                const std::vector<TensorId>& parts,
                int axis);

}  // namespace ops

template <typename T>
struct ConcatForward {
  ConcatAttributes sizes;
  const T* x[kMaxConcatInputs] = {};  // (rows, ends[k] - ends[k - 1])
  T* y;                               // (rows, columns)

  explicit ConcatForward(const OpCall& call)
      : sizes(call.attributes<ConcatAttributes>()), y(call.output<T>(ConcatOut::kY)) {
    for (size_t k = 0; k < static_cast<size_t>(sizes.count); ++k)
      x[k] = call.input<T>({ConcatIn::kX, k});
  }
};

template <typename T>
struct ConcatBackward {
  ConcatAttributes sizes;
  const T* d_y;                   // (rows, columns)
  T* d_x[kMaxConcatInputs] = {};  // (rows, ends[k] - ends[k - 1]), each or null

  explicit ConcatBackward(const OpCall& call)
      : sizes(call.attributes<ConcatAttributes>()), d_y(call.input<T>(ConcatBackwardIn::kDY)) {
    for (size_t k = 0; k < static_cast<size_t>(sizes.count); ++k)
      d_x[k] = call.output<T>({ConcatBackwardOut::kDX, k});
  }
};

}  // namespace lockstep::graph
