#pragma once
// rms_norm: sum = x + delta; y = sum rstd gamma, rstd = 1 / sqrt(mean(sum^2) + epsilon), by rows
// (Zhang and Sennrich 2019).
//   inputs  x (..., C), delta (..., C) or none, gamma (C)
//   outputs y (..., C), sum (..., C) or none if there is no delta, rstd (rows)
// rms_norm_backward: with g = d_y gamma and xhat = sum rstd,
//   d_sum = rstd (g - xhat mean(g xhat)) + d_residual, d_gamma = sum over the rows of d_y xhat.
//   inputs  d_y, d_residual or none (the gradient that reaches `sum` from elsewhere), sum (x if
//           there is no delta), gamma, rstd
//   outputs d_sum (the gradient of both x and delta), d_gamma
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

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
    return {.rows = op.input_shape(0).rows(),
            .columns = op.input_shape(0).columns(),
            .places = {.stride = op.input_shape(0).columns()},
            .epsilon = op.attributes<RmsNormAttributes>().epsilon,
            .x = op.input<T>(0),
            .delta = op.input<T>(1),
            .gamma = op.input<T>(2),
            .y = op.output<T>(0),
            .sum = op.output<T>(1),
            .rstd = op.output<Wide<T>>(2)};
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
    return {.rows = op.input_shape(0).rows(),
            .columns = op.input_shape(0).columns(),
            .places = {.stride = op.input_shape(0).columns()},
            .d_y = op.input<T>(0),
            .d_residual = op.input<T>(1),
            .sum = op.input<T>(2),
            .gamma = op.input<T>(3),
            .rstd = op.input<Wide<T>>(4),
            .d_sum = op.output<T>(0),
            .d_gamma = op.output<Wide<T>>(1),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep
