#pragma once
// softmax over the last axis: y = e^(x - m) / sum(e^(x - m)), or its logarithm
// x - m - log(sum(e^(x - m))), with m the row's largest element. A row with +infinity or NaN gives
// NaN. A row of only -infinity gives NaN or, as in attention, zeros.
// softmax_backward: d_x = y (d_y - sum(d_y y)); for the logarithm d_x = d_y - e^y sum(d_y).

#include <cstdint>
#include <string>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

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
  bool log, or_zero;
  int64_t rows, columns;
  const T* x;  // (rows, columns)
  T* y;        // (rows, columns). May be x

  static SoftmaxForward of(const OpCall& op) {
    const SoftmaxForm form = op.attributes<SoftmaxAttributes>().form;
    return {.log = form == SoftmaxForm::kLogarithm,
            .or_zero = form == SoftmaxForm::kSharesOrZero,
            .rows = op.input_shape(SoftmaxIn::kX).rows(),
            .columns = op.input_shape(SoftmaxIn::kX).columns(),
            .x = op.input<T>(SoftmaxIn::kX),
            .y = op.output<T>(SoftmaxOut::kY)};
  }
};

template <typename T>
struct SoftmaxBackward {
  bool log;
  int64_t rows, columns;
  const T* d_y;  // (rows, columns)
  const T* y;    // (rows, columns)
  T* d_x;        // (rows, columns). May be d_y or y

  static SoftmaxBackward of(const OpCall& op) {
    return {.log = op.attributes<SoftmaxAttributes>().form == SoftmaxForm::kLogarithm,
            .rows = op.input_shape(SoftmaxBackwardIn::kDY).rows(),
            .columns = op.input_shape(SoftmaxBackwardIn::kDY).columns(),
            .d_y = op.input<T>(SoftmaxBackwardIn::kDY),
            .y = op.input<T>(SoftmaxBackwardIn::kY),
            .d_x = op.output<T>(SoftmaxBackwardOut::kDX)};
  }
};

}  // namespace lockstep::graph
