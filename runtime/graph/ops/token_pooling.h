#pragma once
// token_pooling: the mean of each sample's tokens that are in documents; 0 if there are none. In
// documents (B, T), -1 is padding, see attention.h.
// token_pooling_backward: every token that was counted gets its share of d_y, the others 0.

#include <cstdint>
#include <string>

#include "runtime/base/host_device.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class TokenPoolingIn : InputIndex { kX, kDocuments };
enum class TokenPoolingOut : OutputIndex { kY };
enum class TokenPoolingBackwardIn : InputIndex { kDY, kDocuments };
enum class TokenPoolingBackwardOut : OutputIndex { kDX };

namespace ops {

// x (B, T, C) -> (B, C). documents (B, T) i32.
TensorId token_pooling(GraphBuilder& builder,
                       const std::string& name,
                       TensorId x,
                       TensorId documents);

}  // namespace ops

// The tokens of a sample that are counted.
struct CountedTokens {
  int64_t tokens;            // T
  const int32_t* documents;  // (B, T)

  LOCKSTEP_HD bool is_counted(int64_t sample, int64_t token) const {
    return documents[sample * tokens + token] >= 0;
  }
  // The share of each counted token: 1 / their number.
  LOCKSTEP_HD float share(int64_t sample) const {
    int64_t count = 0;
    for (int64_t token = 0; token < tokens; ++token) count += is_counted(sample, token);
    return count == 0 ? 0.0f : 1.0f / static_cast<float>(count);
  }
};

template <typename T>
struct TokenPoolingForward {
  const OpCall& call = OpCall::none();
  // B, C
  int64_t batch = call.input_shape(TokenPoolingIn::kX)[0];
  int64_t width = call.input_shape(TokenPoolingIn::kX)[2];
  CountedTokens counted = {call.input_shape(TokenPoolingIn::kX)[1],
                           call.input<int32_t>(TokenPoolingIn::kDocuments)};
  const T* x = call.input<T>(TokenPoolingIn::kX);  // (B, T, C)
  T* y = call.output<T>(TokenPoolingOut::kY);      // (B, C)
};

template <typename T>
struct TokenPoolingBackward {
  const OpCall& call = OpCall::none();
  int64_t batch = call.output_shape(TokenPoolingBackwardOut::kDX)[0];
  int64_t width = call.output_shape(TokenPoolingBackwardOut::kDX)[2];
  CountedTokens counted = {call.output_shape(TokenPoolingBackwardOut::kDX)[1],
                           call.input<int32_t>(TokenPoolingBackwardIn::kDocuments)};
  const T* d_y = call.input<T>(TokenPoolingBackwardIn::kDY);  // (B, C)
  T* d_x = call.output<T>(TokenPoolingBackwardOut::kDX);      // (B, T, C)
};

}  // namespace lockstep::graph
