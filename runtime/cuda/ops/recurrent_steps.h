#pragma once
// The kernels of a recurrent layer between its products: each processes the elements of a step's
// states (N, H), or of its gates, separately. Only kernel files include this.

#include <cstdint>

#include "runtime/base/half.h"
#include "runtime/cuda/activation_values.h"
#include "runtime/cuda/launch.h"
#include "runtime/graph/ops/recurrent.h"

namespace lockstep::cuda {

__device__ __forceinline__ float sigmoid_slope(float value) { return value * (1 - value); }
__device__ __forceinline__ float tanh_slope(float value) { return 1 - value * value; }

template <typename T>
__device__ __forceinline__ float at_or_zero(const T* from, int64_t i) {
  return from == nullptr ? 0.0f : to_float(from[i]);
}

// Initialises v, before the products, with the biases or zeros. Elements of (D, T N, S H).
template <typename T>
struct FillBiases {
  graph::Cell cell;
  int64_t hidden, rows, columns;  // rows: G H; columns: S H
  int64_t direction_rows;         // T N
  const T* bias;
  float* gates;

  template <typename Count>
  __device__ void operator()(int64_t first, Count) const {
    for (int64_t i = first; i < first + Count::value; ++i) {
      const int64_t column = i % columns, direction = i / columns / direction_rows;
      if (bias == nullptr) {
        gates[i] = 0;
        continue;
      }
      const T* const of_w = bias + direction * 2 * rows;
      const int64_t slot = column / hidden;
      if (cell != graph::Cell::kGru || slot < 2)
        gates[i] = to_float(of_w[column]) + to_float(of_w[rows + column]);
      else
        gates[i] = to_float(slot == 2 ? of_w[rows + column] : of_w[column - hidden]);
    }
  }
};

template <typename T>
struct Step {
  graph::Cell cell;
  int64_t hidden, columns;
  const T *h_before, *c_before;  // (N, H), or null for zeros
  float* gates;                  // (N, S H)
  T* cells;                      // (N, H), LSTM only
  T* y;                          // (N, H)

  template <typename Count>
  __device__ void operator()(int64_t first, Count) const {
    for (int64_t i = first; i < first + Count::value; ++i) one(i);
  }

  __device__ void one(int64_t i) const {
    float* const v = gates + i / hidden * columns + i % hidden;
    if (cell == graph::Cell::kLstm) {
      const float in = sigmoid(v[0]), out = sigmoid(v[hidden]), forget = sigmoid(v[2 * hidden]);
      const float g = tanhf(v[3 * hidden]);
      const float c = fmaf(forget, at_or_zero(c_before, i), in * g);
      v[0] = in;
      v[hidden] = out;
      v[2 * hidden] = forget;
      v[3 * hidden] = g;
      cells[i] = round_to<T>(c);
      y[i] = round_to<T>(out * tanhf(to_float(cells[i])));
    } else if (cell == graph::Cell::kGru) {
      const float z = sigmoid(v[0]), r = sigmoid(v[hidden]);
      const float n = tanhf(fmaf(r, v[2 * hidden], v[3 * hidden]));
      v[0] = z;
      v[hidden] = r;
      v[3 * hidden] = n;
      y[i] = round_to<T>(fmaf(z, at_or_zero(h_before, i) - n, n));
    } else if (cell == graph::Cell::kTanh) {
      y[i] = round_to<T>(tanhf(v[0]));
    } else {
      y[i] = round_to<T>(v[0] < 0 ? 0 : v[0]);
    }
  }
};

template <typename T>
struct StepBackward {
  graph::Cell cell;
  int64_t hidden, columns;
  const T *h_before, *c_before;  // (N, H) or null
  const float* gates;            // (N, S H)
  const T *cells, *y;            // (N, H)
  const T *d_y, *d_cells;        // (N, H) or null
  float *d_h, *d_c;              // (N, H): from the next step; d_c for LSTM only
  T* d_gates;                    // (N, S H)

  template <typename Count>
  __device__ void operator()(int64_t first, Count) const {
    for (int64_t i = first; i < first + Count::value; ++i) one(i);
  }

  __device__ void one(int64_t i) const {
    const int64_t at = i / hidden * columns + i % hidden;
    const float* const v = gates + at;
    const auto put = [&](int slot, float d) { d_gates[at + slot * hidden] = round_to<T>(d); };
    const float d = d_h[i] + at_or_zero(d_y, i);
    if (cell == graph::Cell::kLstm) {
      const float in = v[0], out = v[hidden], forget = v[2 * hidden], g = v[3 * hidden];
      const float squashed = tanhf(to_float(cells[i]));
      const float own = d_c[i] + at_or_zero(d_cells, i);
      const float c = fmaf(d * out, tanh_slope(squashed), own);
      put(0, c * g * sigmoid_slope(in));
      put(1, d * squashed * sigmoid_slope(out));
      put(2, c * at_or_zero(c_before, i) * sigmoid_slope(forget));
      put(3, c * in * tanh_slope(g));
      d_c[i] = c * forget;
    } else if (cell == graph::Cell::kGru) {
      const float z = v[0], r = v[hidden], q = v[2 * hidden], n = v[3 * hidden];
      const float d_n = d * (1 - z) * tanh_slope(n);
      put(0, d * (at_or_zero(h_before, i) - n) * sigmoid_slope(z));
      put(1, d_n * q * sigmoid_slope(r));
      put(2, d_n * r);
      put(3, d_n);
      d_h[i] = d * z;
    } else if (cell == graph::Cell::kTanh) {
      put(0, d * tanh_slope(to_float(y[i])));
    } else {
      put(0, to_float(y[i]) > 0 ? d : 0);
    }
  }
};

// The sums of d_gates' columns (S H) as the gradient of a direction's bias (2 G H).
struct BiasGradient {
  graph::Cell cell;
  int64_t hidden, rows;
  bool accumulate;
  const float* sums;
  float* d_bias;
  template <typename Count>
  __device__ void operator()(int64_t first, Count) const {
    for (int64_t i = first; i < first + Count::value; ++i) {
      const int64_t row = i % rows;
      const bool n_of_w = cell == graph::Cell::kGru && i < rows && row >= 2 * hidden;
      const float sum = sums[n_of_w ? row + hidden : row];
      d_bias[i] = accumulate ? d_bias[i] + sum : sum;
    }
  }
};

}  // namespace lockstep::cuda
