#pragma once
// concat: y is x_0, x_1, ... one after the other along one dimension.
// concat_backward: each d_x_k is its part of d_y.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

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
  const T* x[kMaxConcatInputs];  // (rows, ends[k] - ends[k - 1])
  T* y;                          // (rows, columns)

  static ConcatForward of(const OpCall& op) {
    ConcatForward made{
        .sizes = op.attributes<ConcatAttributes>(), .x = {}, .y = op.output<T>(ConcatOut::kY)};
    for (int k = 0; k < made.sizes.count; ++k)
      made.x[k] = op.input<T>({ConcatIn::kX, static_cast<size_t>(k)});
    return made;
  }
};

template <typename T>
struct ConcatBackward {
  ConcatAttributes sizes;
  const T* d_y;              // (rows, columns)
  T* d_x[kMaxConcatInputs];  // (rows, ends[k] - ends[k - 1]), each or null

  static ConcatBackward of(const OpCall& op) {
    ConcatBackward made{.sizes = op.attributes<ConcatAttributes>(),
                        .d_y = op.input<T>(ConcatBackwardIn::kDY),
                        .d_x = {}};
    for (int k = 0; k < made.sizes.count; ++k)
      made.d_x[k] = op.output<T>({ConcatBackwardOut::kDX, static_cast<size_t>(k)});
    return made;
  }
};

}  // namespace lockstep::graph
