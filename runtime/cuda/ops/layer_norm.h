#pragma once
// Layer normalisation over the last dimension on the GPU, with the addition of a residual branch
// fused in; see runtime/cpu/ops/layer_norm.h for the formulas. T, what is stored, is float,
// BFloat16 or Float16; all arithmetic is in float, and the order of every sum is fixed by the shape
// alone.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Columns that a row may have, forward and backward, when it is whole vectors of 16 bytes; without
// that kLayerNormOddColumns.
inline constexpr int64_t kLayerNormColumns = 8192;
inline constexpr int64_t kLayerNormOddColumns = 2048;

// sum = x + delta (where delta is given), rounded to T; y = layer_norm(sum). sum may be x or delta.
template <typename T>
struct LayerNormForward {
  int64_t rows;
  int64_t columns;
  float epsilon;
  const T* x;      // (rows, columns)
  const T* delta;  // (rows, columns) or null: normalise x itself
  const T* gamma;  // (columns)
  const T* beta;   // (columns) or null
  T* sum;          // (rows, columns); unused without delta
  T* y;            // (rows, columns)
  float* mean;     // (rows)
  float* rstd;     // (rows)
};
template <typename T>
void layer_norm_forward(const LayerNormForward<T>& op, Stream stream);

// d_x may be d_y or d_sum.
template <typename T>
struct LayerNormBackward {
  int64_t rows;
  int64_t columns;
  const T* d_y;       // (rows, columns)
  const T* x;         // (rows, columns) what was normalised
  const T* gamma;     // (columns)
  const float* mean;  // (rows)
  const float* rstd;  // (rows)
  const T* d_sum;     // (rows, columns) or null: what reaches the sum by other ways
  T* d_x;             // (rows, columns)
  float* d_gamma;     // (columns)
  float* d_beta;      // (columns) or null
  bool accumulate;    // d_gamma and d_beta: += instead of =
  float* workspace;   // layer_norm_backward_workspace_bytes(rows, columns)
};
template <typename T>
void layer_norm_backward(const LayerNormBackward<T>& op, Stream stream);
size_t layer_norm_backward_workspace_bytes(int64_t rows, int64_t columns);

}  // namespace lockstep::cuda
