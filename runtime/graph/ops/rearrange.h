#pragma once
// rearrange: y is a view of x: a transpose, a slice, a broadcast, a tile, a padding (graph/view.h).
// reshape: y is x with other extents, element by element. Costs nothing if y overwrites x.
// x may be a parameter. y has its type: floats, or i32, which have no gradient.
// rearrange_backward: d_x (+)= the sums of d_y over the elements that read an element of x, in a
// fixed order; zero if no element does. If each element of x is read at most once, and x is not a
// parameter, the gradient is a rearrange itself. d_x is f32 for a parameter.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_call.h"
#include "runtime/graph/view.h"

namespace lockstep::graph {

// Of rearrange and reshape.
enum class RearrangeIn : InputIndex { kX };
enum class RearrangeOut : OutputIndex { kY };
enum class RearrangeBackwardIn : InputIndex { kDY };
enum class RearrangeBackwardOut : OutputIndex { kDX };

struct RearrangeAttributes {
  ViewAndInverse views;
  // Those that the view was made of, in order, for other programs; empty for a gradient. They may
  // split a dimension of y.
  std::vector<ViewAxis> axes = {};
};
struct RearrangeBackwardAttributes {
  View view;  // of d_x into d_y; the first term of each sum
  ViewTerms terms;
  bool accumulate = false;  // d_x += instead of =
};

namespace ops {

// Each function makes an activation of x's type. Rows of x must not be padded.

// Dimension d of y reads x as axes[d] says; other elements are `fill`. The op is a rearrange even
// if y equals x, so that graphs of several lengths have the same ops.
TensorId rearrange(GraphBuilder& builder,
                   const std::string& name,
                   TensorId x,
                   const std::vector<ViewAxis>& axes,
                   float fill = 0);

// The elements of x at `index` of dimension `axis`, which y lacks. Always a rearrange, too.
TensorId select(
    GraphBuilder& builder, const std::string& name, TensorId x, int axis, int64_t index);

// Dimension d of y is dimension permutation[d] of x.
TensorId transpose(GraphBuilder& builder,
                   const std::string& name,
                   TensorId x,
                   const std::vector<int>& permutation);

// `shape` has as many elements as x.
TensorId reshape(GraphBuilder& builder, const std::string& name, TensorId x, const Shape& shape);

// y[i0, ...] = x[starts[0] + i0 steps[0], ...]; all of these must be in x. Steps may be negative,
// but not 0.
TensorId slice(GraphBuilder& builder,
               const std::string& name,
               TensorId x,
               const std::vector<int64_t>& starts,
               const std::vector<int64_t>& steps,
               const Shape& extents);

// Broadcasts as in NumPy: extents are matched from the last one on, and those of x are 1 or equal.
TensorId expand(GraphBuilder& builder, const std::string& name, TensorId x, const Shape& shape);

// Repeats x repeats[d] times along dimension d.
TensorId tile(GraphBuilder& builder,
              const std::string& name,
              TensorId x,
              const std::vector<int64_t>& repeats);

// Pads dimension d with before[d] and after[d] times `value`; negative numbers cut off elements.
// For i32, `value` is an integer.
TensorId pad(GraphBuilder& builder,
             const std::string& name,
             TensorId x,
             const std::vector<int64_t>& before,
             const std::vector<int64_t>& after,
             float value);

// The parameter's values as an activation, for ops that take no parameters.
TensorId copy_parameter(GraphBuilder& builder, const std::string& name, TensorId parameter);

}  // namespace ops

template <typename T>
struct RearrangeForward {
  const OpCall& call = OpCall::none();
  View view = call.attributes<RearrangeAttributes>().views.view;
  const T* x = call.input<T>(RearrangeIn::kX);
  T* y = call.output<T>(RearrangeOut::kY);
};

template <typename T>
struct Reshape {
  const OpCall& call = OpCall::none();
  int64_t n = call.input_shape(RearrangeIn::kX).elements();
  const T* x = call.input<T>(RearrangeIn::kX);  // (n)
  T* y = call.output<T>(RearrangeOut::kY);      // (n). May be x
};

// D is Wide<T> for a parameter, otherwise T.
template <typename T, typename D>
struct RearrangeBackward {
  const OpCall& call = OpCall::none();
  View view = call.attributes<RearrangeBackwardAttributes>().view;  // of d_x into d_y
  ViewTerms terms = call.attributes<RearrangeBackwardAttributes>().terms;
  bool accumulate = call.attributes<RearrangeBackwardAttributes>().accumulate;
  const T* d_y = call.input<T>(RearrangeBackwardIn::kDY);
  D* d_x = call.output<D>(RearrangeBackwardOut::kDX);
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

}  // namespace lockstep::graph
