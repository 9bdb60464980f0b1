#pragma once
// Token plus position embedding in double precision.

#include <cstdint>
#include <vector>

namespace lockstep::test {

// y (B, T, C) from ids (B, T), token (V, C) and position (>= T, C).
inline std::vector<double> embedding_forward(const std::vector<int32_t>& ids,
                                             const std::vector<double>& token,
                                             const std::vector<double>& position,
                                             int64_t batch,
                                             int64_t time,
                                             int64_t channels) {
  std::vector<double> y(batch * time * channels);
  for (int64_t row = 0; row < batch * time; ++row) {
    for (int64_t c = 0; c < channels; ++c) {
      y[row * channels + c] = token[ids[row] * channels + c] + position[row % time * channels + c];
    }
  }
  return y;
}

// Adds to d_token and d_position.
inline void embedding_backward(const std::vector<int32_t>& ids,
                               const std::vector<double>& d_y,
                               int64_t batch,
                               int64_t time,
                               int64_t channels,
                               std::vector<double>& d_token,
                               std::vector<double>& d_position) {
  for (int64_t row = 0; row < batch * time; ++row) {
    for (int64_t c = 0; c < channels; ++c) {
      d_token[ids[row] * channels + c] += d_y[row * channels + c];
      d_position[row % time * channels + c] += d_y[row * channels + c];
    }
  }
}

}  // namespace lockstep::test
