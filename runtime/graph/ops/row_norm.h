#pragma once
// Norms of rows, of sum = x + delta:
// layer_norm: y = (sum - mean) rstd gamma + beta, rstd = 1 / sqrt(variance + epsilon); the variance
// is biased (Ba et al. 2016).
// rms_norm: the same without mean and beta: y = sum rstd gamma, rstd = 1 / sqrt(mean(sum^2) +
// epsilon) (Zhang and Sennrich 2019).
// Their backward ops: with g = d_y gamma and xhat = (sum - mean) rstd,
//   d_sum = rstd (g - mean(g) - xhat mean(g xhat)) + d_residual, without mean(g) in rms_norm,
//   d_gamma = sum over the rows of d_y xhat, d_beta = sum over the rows of d_y.
// d_residual is the gradient that reaches `sum` from elsewhere; d_sum is that of both x and delta.
// A parameter of a norm is used once in a graph, so its gradient is always overwritten.

#include <cstdint>
#include <string>
#include <utility>

#include "runtime/graph/op_call.h"

namespace lockstep::graph {

// Operands of both norms; rms_norm has no beta, no mean and no d_beta.
enum class RowNormIn : InputIndex { kX, kDelta, kGamma, kBeta };
enum class RowNormOut : OutputIndex { kY, kSum, kMean, kRstd };  // no sum without delta
enum class RowNormBackwardIn : InputIndex { kDY, kDResidual, kSum, kGamma, kMean, kRstd };
enum class RowNormBackwardOut : OutputIndex { kDSum, kDGamma, kDBeta };

struct RowNormAttributes {
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

std::pair<TensorId, TensorId> rms_norm(GraphBuilder& builder,
                                       const std::string& name,
                                       TensorId x,
                                       TensorId delta,
                                       TensorId gamma,
                                       float epsilon);

}  // namespace ops

// The first element of each row. In these ops, rows are `stride` apart (heads = 1). In qk_norm,
// groups of `heads` contiguous rows are `stride` apart.
struct RowPlaces {
  int64_t heads = 1, stride;

  int64_t begin(int64_t row, int64_t columns) const {
    return heads == 1 ? row * stride : row / heads * stride + row % heads * columns;
  }
};

template <typename T>
struct RowNormForward {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(RowNormIn::kX).rows();
  int64_t columns = call.input_shape(RowNormIn::kX).columns();
  // of x, delta, y and sum
  RowPlaces places = {.stride = columns};
  bool centred = call.has_output(RowNormOut::kMean);  // layer_norm: the mean is subtracted
  float epsilon = call.attributes<RowNormAttributes>().epsilon;
  const T* x = call.input<T>(RowNormIn::kX);          // (rows, columns)
  const T* delta = call.input<T>(RowNormIn::kDelta);  // (rows, columns) or null
  const T* gamma = call.input<T>(RowNormIn::kGamma);  // (columns)
  const T* beta = call.input<T>(RowNormIn::kBeta);    // (columns) or null
  T* y = call.output<T>(RowNormOut::kY);              // (rows, columns)
  // (rows, columns), rounded to T; null if delta is. May be x or delta
  T* sum = call.output<T>(RowNormOut::kSum);
  Wide<T>* mean = call.output<Wide<T>>(RowNormOut::kMean);  // (rows), if centred
  Wide<T>* rstd = call.output<Wide<T>>(RowNormOut::kRstd);  // (rows)
};

template <typename T>
struct RowNormBackward {
  const OpCall& call = OpCall::none();
  int64_t rows = call.input_shape(RowNormBackwardIn::kDY).rows();
  int64_t columns = call.input_shape(RowNormBackwardIn::kDY).columns();
  // of d_y, d_residual, sum and d_sum
  RowPlaces places = {.stride = columns};
  bool centred = call.has_input(RowNormBackwardIn::kMean);
  const T* d_y = call.input<T>(RowNormBackwardIn::kDY);                 // (rows, columns)
  const T* d_residual = call.input<T>(RowNormBackwardIn::kDResidual);   // (rows, columns) or null
  const T* sum = call.input<T>(RowNormBackwardIn::kSum);                // (rows, columns)
  const T* gamma = call.input<T>(RowNormBackwardIn::kGamma);            // (columns)
  const Wide<T>* mean = call.input<Wide<T>>(RowNormBackwardIn::kMean);  // (rows), if centred
  const Wide<T>* rstd = call.input<Wide<T>>(RowNormBackwardIn::kRstd);  // (rows)
  // (rows, columns). May be d_y or d_residual
  T* d_sum = call.output<T>(RowNormBackwardOut::kDSum);
  Wide<T>* d_gamma = call.output<Wide<T>>(RowNormBackwardOut::kDGamma);  // (columns)
  Wide<T>* d_beta = call.output<Wide<T>>(RowNormBackwardOut::kDBeta);    // (columns) or null
  Wide<T>* workspace = call.workspace<Wide<T>>();  // as the implementation needs

  // Sums over the rows, of d_gamma and, if centred, d_beta.
  int64_t sums() const { return centred ? 2 * columns : columns; }
};

}  // namespace lockstep::graph
