#pragma once
// softmax over the last axis: y = e^(x - m) / sum(e^(x - m)), or its logarithm
// x - m - log(sum(e^(x - m))), with m the row's largest element. A row with +infinity or NaN gives
// NaN. A row of only -infinity gives NaN or, as in attention, zeros.
// softmax_backward: d_x = y (d_y - sum(d_y y)); for the logarithm d_x = d_y - e^y sum(d_y).

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class SoftmaxIn : InputIndex { kX };
enum class SoftmaxOut : OutputIndex { kY };
enum class SoftmaxBackwardIn : InputIndex { kDY, kY };
enum class SoftmaxBackwardOut : OutputIndex { kDX };

enum class SoftmaxForm {
  kShares,        // probabilities: a row sums to 1
  kSharesOrZero,  // the same, but zeros for a row of only -infinity, which a mask hides
  kLogarithm,     // logarithms of probabilities
};

struct SoftmaxAttributes {
  SoftmaxForm form = SoftmaxForm::kShares;
};

namespace ops {

// Returns a tensor with x's shape and type. x must not be a parameter.
TensorId softmax(GraphBuilder& builder, const std::string& name, TensorId x, SoftmaxForm form);

}  // namespace ops

template <typename T>
struct SoftmaxForward {
  const OpCall& call = OpCall::none();
  bool log = call.attributes<SoftmaxAttributes>().form == SoftmaxForm::kLogarithm;
  bool or_zero = call.attributes<SoftmaxAttributes>().form == SoftmaxForm::kSharesOrZero;
  int64_t rows = call.input_shape(SoftmaxIn::kX).rows();
  int64_t columns = call.input_shape(SoftmaxIn::kX).columns();
  const T* x = call.input<T>(SoftmaxIn::kX);  // (rows, columns)
  T* y = call.output<T>(SoftmaxOut::kY);      // (rows, columns). May be x
};

template <typename T>
struct SoftmaxBackward {
  const OpCall& call = OpCall::none();
  bool log = call.attributes<SoftmaxAttributes>().form == SoftmaxForm::kLogarithm;
  int64_t rows = call.input_shape(SoftmaxBackwardIn::kDY).rows();
  int64_t columns = call.input_shape(SoftmaxBackwardIn::kDY).columns();
  const T* d_y = call.input<T>(SoftmaxBackwardIn::kDY);  // (rows, columns)
  const T* y = call.input<T>(SoftmaxBackwardIn::kY);     // (rows, columns)
  T* d_x = call.output<T>(SoftmaxBackwardOut::kDX);      // (rows, columns). May be d_y or y
};

}  // namespace lockstep::graph
