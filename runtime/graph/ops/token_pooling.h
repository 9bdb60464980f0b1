#pragma once
// token_pooling: one row for the tokens of each sample: the first token's, or the mean of all
// tokens or of those in documents. 0 if there are none.
//   inputs  x (B, T, C), documents (B, T) i32 or none: -1 is padding, see attention.h
//   output  y (B, C)
// token_pooling_backward: every token that was counted gets its share of d_y, the others 0.
//   inputs  d_y, documents or none; output d_x (B, T, C)

#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep {

class GraphBuilder;

struct TokenPoolingAttributes {
  bool mean = false;   // otherwise the first token
  int64_t tokens = 1;  // T
};

namespace ops {

// x (B, T, C) -> (B, C). documents (B, T) i32 or kNoTensor; for the mean alone.
TensorId token_pooling(
    GraphBuilder& builder, const std::string& name, TensorId x, TensorId documents, bool mean);

}  // namespace ops

// The tokens of a sample that are counted.
struct CountedTokens {
  int64_t tokens;  // T
  bool mean;
  const int32_t* documents;  // (B, T) or null

  LOCKSTEP_HD bool is_counted(int64_t sample, int64_t token) const {
    if (!mean) return token == 0;
    return documents == nullptr || documents[sample * tokens + token] >= 0;
  }
  // The share of each counted token: 1 / their number.
  LOCKSTEP_HD float share(int64_t sample) const {
    if (!mean) return 1;
    int64_t count = 0;
    for (int64_t token = 0; token < tokens; ++token) count += is_counted(sample, token);
    return count == 0 ? 0.0f : 1.0f / static_cast<float>(count);
  }
};

template <typename T>
struct TokenPoolingForward {
  int64_t batch, width;  // B, C
  CountedTokens counted;
  const T* x;  // (B, T, C)
  T* y;        // (B, C)

  static TokenPoolingForward of(const OpCall& op) {
    const auto& attributes = op.attributes<TokenPoolingAttributes>();
    const Shape& x = op.input_shape(0);
    return {.batch = x[0],
            .width = x[2],
            .counted = {x[1], attributes.mean, op.input<int32_t>(1)},
            .x = op.input<T>(0),
            .y = op.output<T>(0)};
  }
};

template <typename T>
struct TokenPoolingBackward {
  int64_t batch, width;
  CountedTokens counted;
  const T* d_y;  // (B, C)
  T* d_x;        // (B, T, C)

  static TokenPoolingBackward of(const OpCall& op) {
    const auto& attributes = op.attributes<TokenPoolingAttributes>();
    const Shape& d_x = op.output_shape(0);
    return {.batch = d_x[0],
            .width = d_x[2],
            .counted = {attributes.tokens, attributes.mean, op.input<int32_t>(1)},
            .d_y = op.input<T>(0),
            .d_x = op.output<T>(0)};
  }
};

}  // namespace lockstep
