#pragma once
// rms_norm: sum = x + delta; y = sum rstd gamma, rstd = 1 / sqrt(mean(sum^2) + epsilon), by rows
// (Zhang and Sennrich 2019).
// rms_norm_backward: with g = d_y gamma and xhat = sum rstd,
//   d_sum = rstd (g - xhat mean(g xhat)) + d_residual, d_gamma = sum over the rows of d_y xhat.
// d_residual is the gradient that reaches `sum` from elsewhere; d_sum is that of both x and delta.
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class RmsNormIn : InputIndex { kX, kDelta, kGamma };
enum class RmsNormOut : OutputIndex { kY, kSum, kRstd };  // no sum without delta
enum class RmsNormBackwardIn : InputIndex { kDY, kDResidual, kSum, kGamma, kRstd };
enum class RmsNormBackwardOut : OutputIndex { kDSum, kDGamma };

struct RmsNormAttributes {
  float epsilon = 1e-5f;
};

namespace ops {

// sum = x + delta, or x (..., C) itself if delta is kNoTensor. Returns {sum, its rows normalised,
// with gamma (C)}.
std::pair<TensorId, TensorId> rms_norm(GraphBuilder& builder,
                                       const std::string& name,
                                       TensorId x,
                                       TensorId delta,
                                       TensorId gamma,
                                       float epsilon);

}  // namespace ops

// Where rows begin, in elements. In this op, rows are `stride` apart (heads = 1). In qk_norm,
// groups of `heads` contiguous rows are `stride` apart.
struct RowPlaces {
  int64_t heads = 1, stride;

  LOCKSTEP_HD int64_t begin(int64_t row, int64_t columns) const {
    return heads == 1 ? row * stride : row / heads * stride + row % heads * columns;
  }
};

template <typename T>
struct RmsNormForward {
  int64_t rows, columns;
  RowPlaces places;  // of x, delta, y and sum
  float epsilon;
  const T* x;      // (rows, columns)
  const T* delta;  // (rows, columns) or null
  const T* gamma;  // (columns)
  T* y;            // (rows, columns)
  T* sum;          // (rows, columns), rounded to T; null if delta is. May be x or delta
  Wide<T>* rstd;   // (rows)

  static RmsNormForward of(const OpCall& op) {
    return {.rows = op.input_shape(RmsNormIn::kX).rows(),
            .columns = op.input_shape(RmsNormIn::kX).columns(),
            .places = {.stride = op.input_shape(RmsNormIn::kX).columns()},
            .epsilon = op.attributes<RmsNormAttributes>().epsilon,
            .x = op.input<T>(RmsNormIn::kX),
            .delta = op.input<T>(RmsNormIn::kDelta),
            .gamma = op.input<T>(RmsNormIn::kGamma),
            .y = op.output<T>(RmsNormOut::kY),
            .sum = op.output<T>(RmsNormOut::kSum),
            .rstd = op.output<Wide<T>>(RmsNormOut::kRstd)};
  }
};

template <typename T>
struct RmsNormBackward {
  int64_t rows, columns;
  RowPlaces places;     // of d_y, d_residual, sum and d_sum
  const T* d_y;         // (rows, columns)
  const T* d_residual;  // (rows, columns) or null
  const T* sum;         // (rows, columns)
  const T* gamma;       // (columns)
  const Wide<T>* rstd;  // (rows)
  T* d_sum;             // (rows, columns). May be d_y or d_residual
  Wide<T>* d_gamma;     // (columns)
  Wide<T>* workspace;   // as the implementation needs

  static RmsNormBackward of(const OpCall& op) {
    return {.rows = op.input_shape(RmsNormBackwardIn::kDY).rows(),
            .columns = op.input_shape(RmsNormBackwardIn::kDY).columns(),
            .places = {.stride = op.input_shape(RmsNormBackwardIn::kDY).columns()},
            .d_y = op.input<T>(RmsNormBackwardIn::kDY),
            .d_residual = op.input<T>(RmsNormBackwardIn::kDResidual),
            .sum = op.input<T>(RmsNormBackwardIn::kSum),
            .gamma = op.input<T>(RmsNormBackwardIn::kGamma),
            .rstd = op.input<Wide<T>>(RmsNormBackwardIn::kRstd),
            .d_sum = op.output<T>(RmsNormBackwardOut::kDSum),
            .d_gamma = op.output<Wide<T>>(RmsNormBackwardOut::kDGamma),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep::graph
