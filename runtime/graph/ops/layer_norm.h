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
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LayerNormIn::kX).rows();
  int64_t columns = call.input_shape(LayerNormIn::kX).columns();
  float epsilon = call.attributes<LayerNormAttributes>().epsilon;
  const T* x = call.input<T>(LayerNormIn::kX);          // (rows, columns)
  const T* delta = call.input<T>(LayerNormIn::kDelta);  // (rows, columns) or null
  const T* gamma = call.input<T>(LayerNormIn::kGamma);  // (columns)
  const T* beta = call.input<T>(LayerNormIn::kBeta);    // (columns) or null
  T* y = call.output<T>(LayerNormOut::kY);              // (rows, columns)
  // (rows, columns), rounded to T; null if delta is. May be x or delta
  T* sum = call.output<T>(LayerNormOut::kSum);
  Wide<T>* mean = call.output<Wide<T>>(LayerNormOut::kMean);  // (rows)
  Wide<T>* rstd = call.output<Wide<T>>(LayerNormOut::kRstd);  // (rows)
};

template <typename T>
struct LayerNormBackward {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(LayerNormBackwardIn::kDY).rows();
  int64_t columns = call.input_shape(LayerNormBackwardIn::kDY).columns();
  const T* d_y = call.input<T>(LayerNormBackwardIn::kDY);                 // (rows, columns)
  const T* d_residual = call.input<T>(LayerNormBackwardIn::kDResidual);   // (rows, columns) or null
  const T* sum = call.input<T>(LayerNormBackwardIn::kSum);                // (rows, columns)
  const T* gamma = call.input<T>(LayerNormBackwardIn::kGamma);            // (columns)
  const Wide<T>* mean = call.input<Wide<T>>(LayerNormBackwardIn::kMean);  // (rows)
  const Wide<T>* rstd = call.input<Wide<T>>(LayerNormBackwardIn::kRstd);  // (rows)
  // (rows, columns). May be d_y or d_residual
  T* d_sum = call.output<T>(LayerNormBackwardOut::kDSum);
  Wide<T>* d_gamma = call.output<Wide<T>>(LayerNormBackwardOut::kDGamma);  // (columns)
  Wide<T>* d_beta = call.output<Wide<T>>(LayerNormBackwardOut::kDBeta);    // (columns) or null
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs
};

}  // namespace lockstep::graph
