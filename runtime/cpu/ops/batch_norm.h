#pragma once
// What the files of batch norm share, and its scale, which convolutions that end in a norm apply
// too. Sums over rows are taken in parts of the rows that their number alone fixes, so that all
// results have the same bits on any number of threads.

#include <cstddef>
#include <cstdint>

#include "runtime/cpu/row_parts.h"
#include "runtime/graph/ops/batch_norm.h"

namespace lockstep::cpu {

// 1 / sqrt(variance + epsilon).
double inverse_deviation(float variance, float epsilon);

// What x - mean is multiplied by: gamma / sqrt(variance + epsilon).
void batch_norm_scale(int64_t channels,
                      const float* gamma,     // (channels)
                      const float* variance,  // (channels)
                      float epsilon,
                      float* scale);  // (channels)

// Fewer rows in a part, and the parts' sums would cost as much as the rows.
inline RowParts batch_norm_parts(int64_t rows) {
  constexpr int64_t kMostParts = 128, kLeastRows = 64;
  return {rows, kMostParts, kLeastRows};
}

// What the ops of batch norm work in: values of channels in double precision and in floats, and the
// parts' sums.
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

// Mean and biased variance (divided by rows) of each column. A part's sums are of distances from
// its first row, and parts are combined in double precision: nothing cancels, however far the
// values lie from zero.
void batch_norm_statistics(int64_t rows,
                           int64_t channels,
                           const float* x,   // (rows, channels)
                           float* mean,      // (channels)
                           float* variance,  // (channels)
                           const BatchNormWorkspace& workspace);

// Mean and biased variance of rows that lie in `lanes` equal parts, from those of each part, in
// order.
void combine_lane_statistics(int64_t lanes,
                             int64_t channels,
                             const float* statistics,  // (lanes, 2, channels): mean, variance
                             float* mean,              // (channels)
                             float* variance);         // (channels)

// y with this mean and variance (channels).
void batch_norm_apply(const BatchNormForward<float>& op, const float* mean, const float* variance);

// What the table of implementations has of batch_norm_backward.cc.
void run_batch_norm_backward(const OpCall& call);
void run_batch_norm_sums(const OpCall& call);
size_t batch_norm_input_gradient_workspace_bytes(const OpCall& call);
void run_batch_norm_input_gradient(const OpCall& call);

}  // namespace lockstep::cpu
