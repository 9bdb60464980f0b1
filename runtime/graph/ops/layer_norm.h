#pragma once
// layer_norm: sum = x + delta; y = (sum - mean) rstd gamma + beta, rstd = 1 / sqrt(variance +
// epsilon), by rows; the variance is biased.
// layer_norm_backward: with g = d_y gamma and xhat = (sum - mean) rstd,
//   d_sum = rstd (g - mean(g) - xhat mean(g xhat)) + d_residual,
//   d_gamma = sum over the rows of d_y xhat, d_beta = sum over the rows of d_y.
// d_residual is the gradient that reaches `sum` from elsewhere; d_sum is that of both x and delta.
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

class GraphBuilder;

enum class LayerNormIn : InputIndex { kX, kDelta, kGamma, kBeta };
enum class LayerNormOut : OutputIndex { kY, kSum, kMean, kRstd };  // no sum without delta
enum class LayerNormBackwardIn : InputIndex { kDY, kDResidual, kSum, kGamma, kMean, kRstd };
enum class LayerNormBackwardOut : OutputIndex { kDSum, kDGamma, kDBeta };

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
    return {.rows = op.input_shape(LayerNormIn::kX).rows(),
            .columns = op.input_shape(LayerNormIn::kX).columns(),
            .epsilon = op.attributes<LayerNormAttributes>().epsilon,
            .x = op.input<T>(LayerNormIn::kX),
            .delta = op.input<T>(LayerNormIn::kDelta),
            .gamma = op.input<T>(LayerNormIn::kGamma),
            .beta = op.input<T>(LayerNormIn::kBeta),
            .y = op.output<T>(LayerNormOut::kY),
            .sum = op.output<T>(LayerNormOut::kSum),
            .mean = op.output<Wide<T>>(LayerNormOut::kMean),
            .rstd = op.output<Wide<T>>(LayerNormOut::kRstd)};
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
    return {.rows = op.input_shape(LayerNormBackwardIn::kDY).rows(),
            .columns = op.input_shape(LayerNormBackwardIn::kDY).columns(),
            .d_y = op.input<T>(LayerNormBackwardIn::kDY),
            .d_residual = op.input<T>(LayerNormBackwardIn::kDResidual),
            .sum = op.input<T>(LayerNormBackwardIn::kSum),
            .gamma = op.input<T>(LayerNormBackwardIn::kGamma),
            .mean = op.input<Wide<T>>(LayerNormBackwardIn::kMean),
            .rstd = op.input<Wide<T>>(LayerNormBackwardIn::kRstd),
            .d_sum = op.output<T>(LayerNormBackwardOut::kDSum),
            .d_gamma = op.output<Wide<T>>(LayerNormBackwardOut::kDGamma),
            .d_beta = op.output<Wide<T>>(LayerNormBackwardOut::kDBeta),
            .workspace = op.workspace<Wide<T>>()};
  }
};

}  // namespace lockstep::graph
