#pragma once
// dropout: y = x * keep / (1 - p), keep drawn from the counter-based stream (seed, step, lane, this
// dropout's number, element).
// dropout_backward: the same mask, drawn again, applied to the gradient.

#include <cstdint>
#include <string>

#include "runtime/base/rng.h"
#include "runtime/graph/op_call.h"

namespace lockstep::graph {

enum class DropoutIn : InputIndex { kX, kDY = kX };
enum class DropoutOut : OutputIndex { kY, kDX = kY };

struct DropoutAttributes {
  float probability = 0;
  uint32_t stream = 0;  // number of this dropout in the graph: part of the random stream's purpose
};

namespace ops {

// Inverted dropout; returns x itself if the probability is 0 or the graph is not for training.
TensorId dropout(GraphBuilder& builder, const std::string& name, TensorId x, float probability);

}  // namespace ops

// Elements whose word of the stream is below this are dropped.
inline uint32_t dropout_threshold(float probability) {
  return static_cast<uint32_t>(static_cast<double>(probability) * 0x1p32);
}
// The factor of the elements that are kept.
inline float dropout_factor(float probability) { return 1 / (1 - probability); }

// Both the forward and the backward pass.
template <typename T>
struct Dropout {
  const OpCall& call = OpCall::none();
  int64_t n = call.input_shape(DropoutIn::kX).elements();
  float probability = call.attributes<DropoutAttributes>().probability;  // of dropping, in [0, 1)
  // of the RngStream; the lane gives the other fields
  uint32_t purpose = kRngDropout | call.attributes<DropoutAttributes>().stream;
  const T* x = call.input<T>(DropoutIn::kX);  // (n)
  T* y = call.output<T>(DropoutOut::kY);      // (n). May be x

  uint32_t threshold() const { return dropout_threshold(probability); }
  float factor() const { return dropout_factor(probability); }
};

}  // namespace lockstep::graph
