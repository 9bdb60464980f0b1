#pragma once
// rearrange: y is a view of x: a transpose, a slice, a broadcast, a tile, a padding (graph/view.h).
//   inputs x, a parameter too; outputs y, of x's type: floats, or i32, which have no gradient
// reshape: y is x with other extents, element by element. May lie over x, and costs nothing then.
//   inputs x, a parameter too; outputs y, as above
// rearrange_backward: d_x (+)= the sums of d_y over the elements that read an element of x, in a
// fixed order; zero where none does. Where each element of x is read once at most, and x is no
// parameter, the gradient is a rearrange itself.
//   inputs d_y; outputs d_x, f32 for a parameter

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/graph/op_call.h"
#include "runtime/graph/view.h"

namespace lockstep {

class GraphBuilder;

struct RearrangeAttributes {
  ViewAndInverse views;
};
struct RearrangeBackwardAttributes {
  View view;  // of d_x into d_y; the first of each sum
  ViewTerms terms;
  bool accumulate = false;  // d_x += instead of =
};

namespace ops {

// Each makes an activation of x's type. No rows of x are padded.

// Dimension d of y is dimension permutation[d] of x.
TensorId transpose(GraphBuilder& builder,
                   const std::string& name,
                   TensorId x,
                   const std::vector<int>& permutation);

// As many elements as x has.
TensorId reshape(GraphBuilder& builder, const std::string& name, TensorId x, const Shape& shape);

// y[i0, ...] = x[starts[0] + i0 steps[0], ...], all of which lies in x. Steps may be negative, not
// 0.
TensorId slice(GraphBuilder& builder,
               const std::string& name,
               TensorId x,
               const std::vector<int64_t>& starts,
               const std::vector<int64_t>& steps,
               const Shape& extents);

// Broadcasts as NumPy does: extents are matched from the last one on, and those of x are 1 or the
// same.
TensorId expand(GraphBuilder& builder, const std::string& name, TensorId x, const Shape& shape);

// x repeats[d] times along dimension d.
TensorId tile(GraphBuilder& builder,
              const std::string& name,
              TensorId x,
              const std::vector<int64_t>& repeats);

// before[d] and after[d] times `value` around dimension d; below 0 so many elements are cut off. Of
// i32 `value` is a whole number.
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
  View view;
  const T* x;
  T* y;

  static RearrangeForward of(const OpCall& op) {
    return {.view = op.attributes<RearrangeAttributes>().views.view,
            .x = op.input<T>(0),
            .y = op.output<T>(0)};
  }
};

template <typename T>
struct Reshape {
  int64_t n;
  const T* x;  // (n)
  T* y;        // (n). May be x

  static Reshape of(const OpCall& op) {
    return {.n = op.input_shape(0).elements(), .x = op.input<T>(0), .y = op.output<T>(0)};
  }
};

// D is Wide<T> for a parameter, else T.
template <typename T, typename D>
struct RearrangeBackward {
  View view;  // of d_x into d_y
  ViewTerms terms;
  bool accumulate;
  const T* d_y;
  D* d_x;
  Wide<T>* workspace;  // as the implementation needs

  static RearrangeBackward of(const OpCall& op) {
    const auto& attributes = op.attributes<RearrangeBackwardAttributes>();
    return {.view = attributes.view,
            .terms = attributes.terms,
            .accumulate = attributes.accumulate,
            .d_y = op.input<T>(0),
            .d_x = op.output<D>(0),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep
