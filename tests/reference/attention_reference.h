#pragma once
// Attention in double precision: plain loops, the oracle of the kernel tests.

#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep::test {

struct AttentionReference {
  int64_t batch, time, heads, head_size;
  bool causal;
  std::vector<double> qkv = {};  // (B, T, 3C)

  std::vector<double> out = {};          // (B, T, C)
  std::vector<double> log_sum_exp = {};  // (B, H, T)
  std::vector<double> weights = {};      // (B, H, T, T)
  std::vector<double> d_qkv = {};        // (B, T, 3C)

  int64_t width() const { return heads * head_size; }
  // Element d of q (part 0), k (1) or v (2) of a token, in qkv or d_qkv.
  int64_t at(int64_t part, int64_t b, int64_t t, int64_t h, int64_t d) const {
    return ((b * time + t) * 3 + part) * width() + h * head_size + d;
  }
  int64_t keys_of(int64_t query) const { return causal ? query + 1 : time; }
  double scale() const { return 1 / std::sqrt(static_cast<double>(head_size)); }

  void forward() {
    out.assign(batch * time * width(), 0);
    log_sum_exp.assign(batch * heads * time, 0);
    weights.assign(batch * heads * time * time, 0);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < time; ++i) {
          double* const p = &weights[((b * heads + h) * time + i) * time];
          double largest = -INFINITY, sum = 0;
          for (int64_t j = 0; j < keys_of(i); ++j) {
            for (int64_t d = 0; d < head_size; ++d) {
              p[j] += scale() * qkv[at(0, b, i, h, d)] * qkv[at(1, b, j, h, d)];
            }
            largest = std::max(largest, p[j]);
          }
          for (int64_t j = 0; j < keys_of(i); ++j) sum += p[j] = std::exp(p[j] - largest);
          log_sum_exp[(b * heads + h) * time + i] = largest + std::log(sum);
          for (int64_t j = 0; j < keys_of(i); ++j) {
            p[j] /= sum;
            for (int64_t d = 0; d < head_size; ++d) {
              out[(b * time + i) * width() + h * head_size + d] += p[j] * qkv[at(2, b, j, h, d)];
            }
          }
        }
      }
    }
  }

  // The gradient of sum(d_out * out); forward() comes first.
  void backward(const std::vector<double>& d_out) {  // (B, T, C)
    d_qkv.assign(qkv.size(), 0);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t i = 0; i < time; ++i) {
          const double* const p = &weights[((b * heads + h) * time + i) * time];
          const double* const d_o = &d_out[(b * time + i) * width() + h * head_size];
          std::vector<double> d_p(time, 0);
          double mean = 0;
          for (int64_t j = 0; j < keys_of(i); ++j) {
            for (int64_t d = 0; d < head_size; ++d) {
              d_p[j] += d_o[d] * qkv[at(2, b, j, h, d)];
              d_qkv[at(2, b, j, h, d)] += p[j] * d_o[d];
            }
            mean += p[j] * d_p[j];
          }
          for (int64_t j = 0; j < keys_of(i); ++j) {
            const double d_s = p[j] * (d_p[j] - mean) * scale();
            for (int64_t d = 0; d < head_size; ++d) {
              d_qkv[at(0, b, i, h, d)] += d_s * qkv[at(1, b, j, h, d)];
              d_qkv[at(1, b, j, h, d)] += d_s * qkv[at(0, b, i, h, d)];
            }
          }
        }
      }
    }
  }
};

}  // namespace lockstep::test
