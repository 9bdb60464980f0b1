#pragma once
// Batch normalisation by channel (the last dimension) on the GPU, with the addition of a residual
// branch and ReLU fused in; see runtime/cpu/ops/batch_norm.h for the formulas. T, what is stored,
// is float, BFloat16 or Float16; all arithmetic is in float, the combination of blocks of rows in
// double, and the order of every sum is fixed by the shape alone.

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/stream.h"

namespace lockstep::cuda {

// Scratch bytes of batch_norm_statistics and batch_norm_backward.
size_t batch_norm_workspace_bytes(int64_t rows, int64_t channels);

// Mean and biased variance (divided by rows) of each channel.
template <typename T>
void batch_norm_statistics(const T* x,  // (rows, channels)
                           int64_t rows,
                           int64_t channels,
                           float* mean,       // (channels)
                           float* variance,   // (channels)
                           float* workspace,  // batch_norm_workspace_bytes(rows, channels)
                           Stream stream);

// y = relu((x - mean) * gamma / sqrt(variance + epsilon) + beta + delta). y may be x or delta. S,
// what the statistics are stored as, is float (those of the batch) or T (the running ones); of
// FP16, infinity is read as the largest finite number.
template <typename T, typename S>
struct BatchNormForward {
  int64_t rows;
  int64_t channels;
  float epsilon;
  bool relu;
  const T* x;         // (rows, channels)
  const T* delta;     // (rows, channels) or null
  const T* gamma;     // (channels)
  const T* beta;      // (channels)
  const S* mean;      // (channels)
  const S* variance;  // (channels)
  T* y;               // (rows, channels)
};
template <typename T, typename S>
void batch_norm_forward(const BatchNormForward<T, S>& op, Stream stream);

// d_x and d_delta may each be d_y, x or y, but not the same one.
template <typename T>
struct BatchNormBackward {
  int64_t rows;
  int64_t channels;
  float epsilon;
  bool relu;
  const T* d_y;  // (rows, channels)
  const T* y;    // (rows, channels), the forward's; null: there was no delta, and what ReLU passed
                 // follows from x
  const T* x;    // (rows, channels)
  const T* gamma;            // (channels)
  const T* beta;             // (channels)
  const float* mean;         // (channels), of these rows
  const float* variance;     // (channels)
  T* d_x;                    // (rows, channels)
  T* d_delta;                // (rows, channels) or null
  float* d_gamma;            // (channels)
  float* d_beta;             // (channels)
  float* batch_mean;         // (channels): receives mean
  float* unbiased_variance;  // (channels): receives variance * rows / (rows - 1)
  float* workspace;          // batch_norm_workspace_bytes(rows, channels)
};
template <typename T>
void batch_norm_backward(const BatchNormBackward<T>& op, Stream stream);

// Its halves, where these rows are those of one of `lanes` lanes, and mean and variance of all.
// Writes d_delta, d_gamma, d_beta (of these rows), batch_mean and unbiased_variance (of all):
template <typename T>
void batch_norm_backward_sums(const BatchNormBackward<T>& op, int64_t lanes, Stream stream);
// Writes d_x; d_gamma and d_beta are read: sums over the rows of all lanes.
template <typename T>
void batch_norm_backward_input(const BatchNormBackward<T>& op, int64_t lanes, Stream stream);

// Mean and biased variance of the rows of all lanes, from those of each, in order.
void combine_lane_statistics(int64_t lanes,
                             int64_t channels,
                             const float* statistics,  // (lanes, 2, channels): mean, variance
                             float* mean,              // (channels)
                             float* variance,          // (channels)
                             Stream stream);

// out (n) = the sums over the lanes, in order, of lanes (lanes, n).
void sum_lanes(int64_t lanes, int64_t n, const float* parts, float* out, Stream stream);

}  // namespace lockstep::cuda
