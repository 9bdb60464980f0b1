#pragma once
// Batch normalisation by channel (the last dimension), fp32, with the addition of a residual branch
// and ReLU fused in. Sums over rows are taken in blocks of rows that the number of rows alone
// fixes, so that all results have the same bits on any number of threads.

#include <cstddef>
#include <cstdint>

namespace lockstep::cpu {

// Scratch bytes of any function below; `workspace` is aligned to 64 bytes.
size_t batch_norm_workspace_bytes(int64_t rows, int64_t channels);

// What x - mean is multiplied by: gamma / sqrt(variance + epsilon).
void batch_norm_scale(int64_t channels,
                      const float* gamma,     // (channels)
                      const float* variance,  // (channels)
                      float epsilon,
                      float* scale);  // (channels)

// Mean and biased variance (divided by rows) of each column. A block's sums are of distances from
// its first row, and blocks are combined in double precision: nothing cancels, however far the
// values lie from zero.
void batch_norm_statistics(int64_t rows,
                           int64_t channels,
                           const float* x,   // (rows, channels)
                           float* mean,      // (channels)
                           float* variance,  // (channels)
                           void* workspace);

// y = relu((x - mean) * gamma / sqrt(variance + epsilon) + beta + delta). y may be x or delta.
struct BatchNormForward {
  int64_t rows;
  int64_t channels;
  float epsilon;
  bool relu;
  const float* x;         // (rows, channels)
  const float* delta;     // (rows, channels) or null
  const float* gamma;     // (channels)
  const float* beta;      // (channels)
  const float* mean;      // (channels)
  const float* variance;  // (channels)
  float* y;               // (rows, channels)
  void* workspace;
};
void batch_norm_forward(const BatchNormForward& op);

// With g = d_y where relu passed it, xhat = (x - mean) / sqrt(variance + epsilon), M = rows:
//   d_beta = sum g, d_gamma = sum g * xhat, d_delta = g,
//   d_x = gamma / sqrt(variance + epsilon) * (g - d_beta / M - xhat * d_gamma / M).
// d_x and d_delta may each be d_y, x or y, but not the same one.
struct BatchNormBackward {
  int64_t rows;
  int64_t channels;
  float epsilon;
  bool relu;
  const float* d_y;  // (rows, channels)
  const float*
      y;  // (rows, channels), the forward's; null: there was no delta, and y follows from x
  const float* x;         // (rows, channels)
  const float* gamma;     // (channels)
  const float* beta;      // (channels)
  const float* mean;      // (channels), of these rows
  const float* variance;  // (channels)
  float* d_x;             // (rows, channels)
  float* d_delta;         // (rows, channels) or null
  float* d_gamma;         // (channels)
  float* d_beta;          // (channels)
  void* workspace;
};
void batch_norm_backward(const BatchNormBackward& op);

// Its halves, for rows that are a part of the M of which mean and variance are. The sums over these
// rows, d_gamma and d_beta, and d_delta:
void batch_norm_backward_sums(const BatchNormBackward& op);
// d_x from the sums over all M rows. op.d_y is d_delta, with neither relu nor y, where there was
// one.
void batch_norm_backward_input(const BatchNormBackward& op,
                               int64_t all_rows,
                               const double* g_sums,         // (channels)
                               const double* product_sums);  // (channels) of g * xhat

// Mean and biased variance of rows that lie in `lanes` equal parts, from those of each part, in
// order.
void combine_lane_statistics(int64_t lanes,
                             int64_t channels,
                             const float* statistics,  // (lanes, 2, channels): mean, variance
                             float* mean,              // (channels)
                             float* variance);         // (channels)

// out = variance * rows / (rows - 1), the unbiased estimate; the variance itself for a single row.
void unbiased_variance(int64_t rows,
                       int64_t channels,
                       const float* variance,  // (channels)
                       float* out);            // (channels)

}  // namespace lockstep::cpu
