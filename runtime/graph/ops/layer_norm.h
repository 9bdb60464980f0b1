#pragma once
// layer_norm: sum = x + delta; y = (sum - mean) rstd gamma + beta, rstd = 1 / sqrt(variance +
// epsilon), by rows; the variance is biased.
//   inputs  x (..., C), delta (..., C) or none, gamma (C), beta (C) or none
//   outputs y (..., C), sum (..., C) or none if there is no delta, mean (rows), rstd (rows)
// layer_norm_backward: with g = d_y gamma and xhat = (sum - mean) rstd,
//   d_sum = rstd (g - mean(g) - xhat mean(g xhat)) + d_residual,
//   d_gamma = sum over the rows of d_y xhat, d_beta = sum over the rows of d_y.
//   inputs  d_y, d_residual or none (the gradient that reaches `sum` from elsewhere), sum (x if
//           there is no delta), gamma, mean, rstd
//   outputs d_sum (the gradient of both x and delta), d_gamma, d_beta or none
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct LayerNormAttributes {
  float epsilon = 1e-5f;
};

namespace ops {

// sum = x + delta, or x (..., C) itself if delta is kNoTensor. Returns {sum, its rows normalised,
// with gamma and beta (C)}. beta may be kNoTensor.
std::pair<TensorId, TensorId> layer_norm(GraphBuilder& builder,
                                         const std::string& name,
                                         TensorId x,
                                         TensorId delta,
                                         TensorId gamma,
                                         TensorId beta,
                                         float epsilon = 1e-5f);

}  // namespace ops

template <typename T>
struct LayerNormForward {
  int64_t rows, columns;
  float epsilon;
  const T* x;      // (rows, columns)
  const T* delta;  // (rows, columns) or null
  const T* gamma;  // (columns)
  const T* beta;   // (columns) or null
  T* y;            // (rows, columns)
  T* sum;          // (rows, columns), rounded to T; null if delta is. May be x or delta
  Wide<T>* mean;   // (rows)
  Wide<T>* rstd;   // (rows)

  static LayerNormForward of(const OpCall& op) {
    return {.rows = op.input_shape(0).rows(),
            .columns = op.input_shape(0).columns(),
            .epsilon = op.attributes<LayerNormAttributes>().epsilon,
            .x = op.input<T>(0),
            .delta = op.input<T>(1),
            .gamma = op.input<T>(2),
            .beta = op.input<T>(3),
            .y = op.output<T>(0),
            .sum = op.output<T>(1),
            .mean = op.output<Wide<T>>(2),
            .rstd = op.output<Wide<T>>(3)};
  }
};

template <typename T>
struct LayerNormBackward {
  int64_t rows, columns;
  const T* d_y;         // (rows, columns)
  const T* d_residual;  // (rows, columns) or null
  const T* sum;         // (rows, columns)
  const T* gamma;       // (columns)
  const Wide<T>* mean;  // (rows)
  const Wide<T>* rstd;  // (rows)
  T* d_sum;             // (rows, columns). May be d_y or d_residual
  Wide<T>* d_gamma;     // (columns)
  Wide<T>* d_beta;      // (columns) or null
  Wide<T>* workspace;   // as the implementation needs

  static LayerNormBackward of(const OpCall& op) {
    return {.rows = op.input_shape(0).rows(),
            .columns = op.input_shape(0).columns(),
            .d_y = op.input<T>(0),
            .d_residual = op.input<T>(1),
            .sum = op.input<T>(2),
            .gamma = op.input<T>(3),
            .mean = op.input<Wide<T>>(4),
            .rstd = op.input<Wide<T>>(5),
            .d_sum = op.output<T>(0),
            .d_gamma = op.output<Wide<T>>(1),
            .d_beta = op.output<Wide<T>>(2),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep
