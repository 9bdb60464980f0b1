#pragma once
// What the families of transformers share: their layers with the usual initial weights, the
// residual stream, and checks.

#include <string>
#include <utility>
#include <vector>

#include "runtime/graph/activation.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/ops/add.h"

namespace lockstep::models {

// Throws ConfigError if the heads do not divide the width. `section` is the name of the model's
// config section.
void check_heads(const std::string& section, int64_t heads, int64_t width);

// Operations of the products of attention in a training step of one sample: in each block 4
// tokens^2 width for the forward pass, and twice as many for the backward pass.
double attention_flops(int64_t tokens, int64_t width, int64_t layers);

// By default matrices are drawn from N(0, 0.02); biases begin with 0, gammas of norms with 1.
class TransformerLayers {
 public:
  explicit TransformerLayers(graph::GraphBuilder& builder) : builder_(builder) {}

 protected:
  static constexpr float kStd = 0.02f;
  static constexpr auto kNormal = graph::Initializer::Kind::kNormal;

  struct Linear {
    int64_t outputs;
    Activation activation = Activation::kNone;
    bool bias = true;
    std::vector<int64_t> row_parts = {};  // see GraphBuilder::set_row_parts
    graph::Initializer initial = {kNormal, kStd};
  };
  // Parameters: name.weight and, if layer.bias is set, name.bias.
  TensorId linear(const std::string& name, TensorId x, const Linear& layer);
  // {x + delta, the layer norm of that sum}; delta may be kNoTensor. Parameters: name.weight and,
  // if `bias` is set, name.bias.
  std::pair<TensorId, TensorId> layer_norm(
      const std::string& name, TensorId x, TensorId delta, float epsilon, bool bias = true);
  TensorId matrix(const std::string& name,
                  int64_t rows,
                  int64_t columns,
                  const graph::Initializer& initial = {kNormal, kStd});
  TensorId constant(const std::string& name, int64_t width, float value);

  graph::GraphBuilder& builder_;
};

// The residual stream of a pre-norm transformer. The next norm adds a branch's output to the
// stream, which saves an op for the addition.
class ResidualStream {
 public:
  explicit ResidualStream(graph::GraphBuilder& builder) : builder_(builder) {}

  void begin(TensorId x) { stream_ = x; }
  // `branch` has the stream's shape; the next norm adds it.
  void add(TensorId branch) { pending_ = branch; }

  // Adds the pending branch and returns the norm of the sum. norm(x, delta) returns {x + delta, the
  // norm of that sum}; delta may be kNoTensor.
  template <typename Norm>
  TensorId norm(Norm&& norm) {
    const auto [sum, normed] = norm(stream_, pending_);
    stream_ = sum;
    pending_ = kNoTensor;
    return normed;
  }

  // Adds blocks by calling block("PREFIX0."), block("PREFIX1."), ... If blocks are recomputed in
  // the backward pass, the pending branch is added before each, so that the block has one input,
  // the only tensor kept of it. Otherwise the block's first norm adds it.
  template <typename Block>
  void add_blocks(int64_t layers, const std::string& prefix, Block&& block) {
    for (int64_t i = 0; i < layers; ++i) {
      const std::string name = prefix + std::to_string(i) + ".";
      if (builder_.options().recompute && pending_ != kNoTensor) {
        stream_ = ops::add(builder_, name + "input", stream_, pending_);
        pending_ = kNoTensor;
      }
      builder_.begin_block();
      block(name);
      builder_.end_block();
    }
  }

 private:
  graph::GraphBuilder& builder_;
  TensorId stream_ = kNoTensor;   // (B, T, C)
  TensorId pending_ = kNoTensor;  // (B, T, C) branch not yet added to it
};

}  // namespace lockstep::models
