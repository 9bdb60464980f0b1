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
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(RmsNormIn::kX).rows();
  int64_t columns = call.input_shape(RmsNormIn::kX).columns();
  // of x, delta, y and sum
  RowPlaces places = {.stride = columns};
  float epsilon = call.attributes<RmsNormAttributes>().epsilon;
  const T* x = call.input<T>(RmsNormIn::kX);          // (rows, columns)
  const T* delta = call.input<T>(RmsNormIn::kDelta);  // (rows, columns) or null
  const T* gamma = call.input<T>(RmsNormIn::kGamma);  // (columns)
  T* y = call.output<T>(RmsNormOut::kY);              // (rows, columns)
  // (rows, columns), rounded to T; null if delta is. May be x or delta
  T* sum = call.output<T>(RmsNormOut::kSum);
  Wide<T>* rstd = call.output<Wide<T>>(RmsNormOut::kRstd);  // (rows)
};

template <typename T>
struct RmsNormBackward {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(RmsNormBackwardIn::kDY).rows();
  int64_t columns = call.input_shape(RmsNormBackwardIn::kDY).columns();
  // of d_y, d_residual, sum and d_sum
  RowPlaces places = {.stride = columns};
  const T* d_y = call.input<T>(RmsNormBackwardIn::kDY);                 // (rows, columns)
  const T* d_residual = call.input<T>(RmsNormBackwardIn::kDResidual);   // (rows, columns) or null
  const T* sum = call.input<T>(RmsNormBackwardIn::kSum);                // (rows, columns)
  const T* gamma = call.input<T>(RmsNormBackwardIn::kGamma);            // (columns)
  const Wide<T>* rstd = call.input<Wide<T>>(RmsNormBackwardIn::kRstd);  // (rows)
  // (rows, columns). May be d_y or d_residual
  T* d_sum = call.output<T>(RmsNormBackwardOut::kDSum);
  Wide<T>* d_gamma = call.output<Wide<T>>(RmsNormBackwardOut::kDGamma);  // (columns)
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

}  // namespace lockstep::graph
