#pragma once
// Functions that the files of batch norm share. Convolutions with a fused norm also use the scale.
// Sums over rows are computed in parts whose number depends on the number of rows alone, so that
// the bits do not depend on the number of threads.

#include <cstddef>
#include <cstdint>

#include "runtime/cpu/row_parts.h"
#include "runtime/graph/ops/batch_norm.h"

namespace lockstep::cpu {

// 1 / sqrt(variance + epsilon).
double inverse_deviation(float variance, float epsilon);

// The factor of x - mean: gamma / sqrt(variance + epsilon). T: float or BFloat16.
template <typename T>
void batch_norm_scale(int64_t channels,
                      const T* gamma,         // (channels)
                      const float* variance,  // (channels)
                      float epsilon,
                      float* scale);  // (channels)

// With fewer rows per part, the parts' sums would cost as much as the rows.
inline RowParts batch_norm_parts(int64_t rows) {
  constexpr int64_t kMaxParts = 128, kMinRows = 64;
  return {rows, kMaxParts, kMinRows};
}

// The workspace of the ops of batch norm: per-channel values in double precision and in floats, and
// the sums of the parts.
struct BatchNormWorkspace {
  double* scratch;                // (2, channels)
  float *scale, *slope, *offset;  // (channels) each
  float* partial;                 // (parts, 2, channels)

  static size_t bytes(int64_t rows, int64_t channels) {
    const int64_t floats = channels * (3 + 2 * batch_norm_parts(rows).count);
    return static_cast<size_t>(2 * channels) * sizeof(double) +
           static_cast<size_t>(floats) * sizeof(float);
  }
  // memory: aligned to 64 bytes.
  BatchNormWorkspace(void* memory, int64_t channels)
      : scratch(static_cast<double*>(memory)),
        scale(reinterpret_cast<float*>(scratch + 2 * channels)),
        slope(scale + channels),
        offset(slope + channels),
        partial(offset + channels) {}
};

// Mean and biased variance (divided by rows) of each column. A part sums the differences from its
// first row, and parts are combined in double precision. So nothing cancels, however far the values
// are from zero. T: float or BFloat16.
template <typename T>
void batch_norm_statistics(int64_t rows,
                           int64_t channels,
                           const T* x,       // (rows, channels)
                           float* mean,      // (channels)
                           float* variance,  // (channels)
                           const BatchNormWorkspace& workspace);

// Mean and biased variance of all rows, from those of `lanes` equal parts, combined in order.
void combine_lane_statistics(int64_t lanes,
                             int64_t channels,
                             const float* statistics,  // (lanes, 2, channels): mean, variance
                             float* mean,              // (channels)
                             float* variance);         // (channels)

// Computes y with this mean and variance (channels). T: float or BFloat16.
template <typename T>
void batch_norm_apply(const graph::BatchNormForward<T>& op,
                      const float* mean,
                      const float* variance);

// Defined in batch_norm_backward.cc, for the table of implementations. T: float or BFloat16.
template <typename T>
void run_batch_norm_backward(const graph::OpCall& call);
template <typename T>
void run_batch_norm_sums(const graph::OpCall& call);
size_t batch_norm_input_gradient_workspace_bytes(const graph::OpCall& call);
template <typename T>
void run_batch_norm_input_gradient(const graph::OpCall& call);

}  // namespace lockstep::cpu
