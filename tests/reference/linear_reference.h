#pragma once
// The linear layer in double precision: plain loops, the oracle of the kernel tests.

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/reference/activations.h"

namespace lockstep::test {

struct LinearReference {
  int64_t rows, inputs, outputs;
  Activation activation;
  std::vector<double> x = {};     // (M, K)
  std::vector<double> w = {};     // (N, K)
  std::vector<double> bias = {};  // (N), or empty

  std::vector<double> pre = {};        // (M, N)
  std::vector<double> y = {};          // (M, N)
  std::vector<double> magnitude = {};  // (M, N) the same sums over absolute values, for tolerances

  void forward() {
    pre.assign(rows * outputs, 0);
    y = magnitude = pre;
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < outputs; ++n) {
        double sum = bias.empty() ? 0 : bias[n], absolute = std::abs(sum);
        for (int64_t k = 0; k < inputs; ++k) {
          sum += x[m * inputs + k] * w[n * inputs + k];
          absolute += std::abs(x[m * inputs + k] * w[n * inputs + k]);
        }
        pre[m * outputs + n] = sum;
        magnitude[m * outputs + n] = absolute;
        y[m * outputs + n] = activation_value(activation, sum);
      }
    }
  }

  std::vector<double> d_pre = {}, d_x = {}, d_w = {}, d_bias = {};  // like the above
  std::vector<double> d_x_magnitude = {}, d_w_magnitude = {}, d_bias_magnitude = {};

  // Gradients of sum(d_y * y); forward() comes first.
  void backward(const std::vector<double>& d_y) {  // (M, N)
    d_pre.resize(rows * outputs);
    for (int64_t i = 0; i < rows * outputs; ++i) {
      d_pre[i] = d_y[i] * activation_derivative(activation, pre[i]);
    }
    d_x.assign(rows * inputs, 0);
    d_w.assign(outputs * inputs, 0);
    d_bias.assign(outputs, 0);
    d_x_magnitude = d_x, d_w_magnitude = d_w, d_bias_magnitude = d_bias;
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t n = 0; n < outputs; ++n) {
        const double d = d_pre[m * outputs + n];
        d_bias[n] += d;
        d_bias_magnitude[n] += std::abs(d);
        for (int64_t k = 0; k < inputs; ++k) {
          d_x[m * inputs + k] += d * w[n * inputs + k];
          d_x_magnitude[m * inputs + k] += std::abs(d * w[n * inputs + k]);
          d_w[n * inputs + k] += d * x[m * inputs + k];
          d_w_magnitude[n * inputs + k] += std::abs(d * x[m * inputs + k]);
        }
      }
    }
  }
};

}  // namespace lockstep::test
