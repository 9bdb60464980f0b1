#pragma once
// Builds a forward graph. Each method is defined in graph/ops/<op>.cc beside the op's schema,
// appends one op and returns its output; shapes are checked there. Shape mistakes are broken
// invariants: models/ validates what users can get wrong.

#include <string>
#include <utility>

#include "runtime/graph/graph.h"

namespace lockstep {

// What a graph is built for, and how the device wants it.
struct GraphOptions {
  GraphOptions(Purpose purpose) : purpose(purpose) {}  // NOLINT: the rest has defaults

  Purpose purpose;
  DType compute = DType::kF32;  // of parameters and activations; statistics of rows stay f32
  int logits_alignment = 1;     // bytes: rows of logits are padded to multiples of it
  bool recompute = false;       // blocks are computed again in the backward pass
  int lanes = 1;                // of the run
  bool bf16x3 = false;          // products of floats, where the device has them: see Graph
};

class GraphBuilder {
 public:
  explicit GraphBuilder(const GraphOptions& options) : options_(options) {
    graph_.purpose = options.purpose;
    graph_.bf16x3 = options.bf16x3;
  }

  TensorId input(const std::string& name, Shape shape, DType dtype);
  TensorId parameter(const std::string& name, Shape shape, Initializer initializer, bool decay);

  // A parameter that each step moves by the share `momentum` towards what the batch shows, instead
  // of by a gradient.
  TensorId running_statistic(const std::string& name, Shape shape, float initial, float momentum);
  // Says that files hold the parameter, here (O, H, W, C) or (O, H * W * C), channels first.
  void set_channels_last(TensorId parameter, Shape extents);

  // activation(x (..., K) weight (N, K)^T + bias (N)) -> (..., N). bias may be kNoTensor. Where K
  // is the product of all extents of x but the first, x is flattened: the output is (rows, N).
  TensorId linear(
      const std::string& name, TensorId x, TensorId weight, TensorId bias, Activation activation);
  // Elementwise activation -> shape of x.
  TensorId activation(const std::string& name, TensorId x, Activation activation);
  // token (V, C)[ids (B, T) i32] + position (>=T, C) -> (B, T, C).
  TensorId embedding(const std::string& name, TensorId ids, TensorId token, TensorId position);
  // Normalises rows of x (..., C) with gain and bias (C); bias may be kNoTensor.
  TensorId layer_norm(const std::string& name, TensorId x, TensorId gain, TensorId bias);
  // sum = x + delta; returns {sum, layer_norm(sum)}.
  std::pair<TensorId, TensorId> layer_norm_residual(
      const std::string& name, TensorId x, TensorId delta, TensorId gain, TensorId bias);
  // Self-attention over packed qkv (B, T, 3C) -> (B, T, C); C = heads * head size, scores scaled by
  // 1/sqrt(head size).
  TensorId attention(const std::string& name, TensorId qkv, int64_t heads, bool causal);
  // Inverted dropout; returns x itself when probability is 0 or the graph is not for training.
  TensorId dropout(const std::string& name, TensorId x, float probability);
  // x in the graph's compute type; x itself where it is that already. No gradient passes.
  TensorId cast(const std::string& name, TensorId x);
  // The ops from here to end_block() form a block: its inputs are all that the backward pass keeps
  // of it where the options say so.
  void begin_block();
  void end_block();
  // a + b, same shape.
  TensorId add(const std::string& name, TensorId a, TensorId b);

  // Images lie as (N, H, W, C).
  // (x / 255 - mean) / std of x (N, H, W, C) u8, in the graph's compute type. No gradient passes.
  TensorId image_normalize(const std::string& name,
                           TensorId x,
                           const ImageNormalizeAttributes& attributes);
  // activation(conv(x (N, H, W, I), weight (O, KH, KW, I / groups)) + bias (O)) -> (N, OH, OW, O).
  // bias may be kNoTensor.
  TensorId conv2d(const std::string& name,
                  TensorId x,
                  TensorId weight,
                  TensorId bias,
                  const Conv2dAttributes& attributes);
  // activation((x - mean) / sqrt(variance + epsilon) * gain + bias + delta) by channel: in training
  // with mean and variance of this lane's batch, else with the running ones. delta may be
  // kNoTensor.
  struct BatchNormParameters {
    TensorId gain, bias, running_mean, running_variance;  // (C) each
  };
  TensorId batch_norm(const std::string& name,
                      TensorId x,
                      TensorId delta,
                      const BatchNormParameters& parameters,
                      const BatchNormAttributes& attributes);
  // (N, H, W, C) -> (N, OH, OW, C).
  TensorId max_pool(const std::string& name, TensorId x, const PoolAttributes& attributes);
  TensorId avg_pool(const std::string& name, TensorId x, const PoolAttributes& attributes);
  // (N, H, W, C) -> (N, C).
  TensorId global_avg_pool(const std::string& name, TensorId x);
  // x / (k + alpha / size * (sum of squares over `size` channels around))^beta.
  TensorId local_response_norm(const std::string& name,
                               TensorId x,
                               const LocalResponseNormAttributes& attributes);
  // Every stride-th pixel of x, channels of zeros around its own.
  TensorId padded_identity(const std::string& name,
                           TensorId x,
                           const PaddedIdentityAttributes& attributes);

  // Losses end a training or evaluation graph. targets: (rows) i32, (rows, O) f32, (rows, O) f32.
  // The rows of logits may become padded.
  void softmax_cross_entropy(TensorId logits, TensorId targets, float label_smoothing);
  void binary_cross_entropy(TensorId logits, TensorId targets);
  void mean_squared_error(TensorId predictions, TensorId targets);
  // Ends an inference graph: `output` is kept.
  void keep(TensorId output);

  const Graph& graph() const { return graph_; }
  const GraphOptions& options() const { return options_; }
  bool training() const { return graph_.purpose == Purpose::kTraining; }
  Graph finish() &&;

 private:
  friend class GradientBuilder;
  TensorId tensor(std::string name, Shape shape, DType dtype, Role role);
  TensorId activation_tensor(const std::string& name, Shape shape);
  TensorId statistics_tensor(const std::string& name, Shape shape);  // f32, one value a row
  void loss(OpKind kind, TensorId logits, TensorId targets, LossAttributes attributes);

  GraphOptions options_;
  Graph graph_;
  uint32_t dropouts_ = 0;
};

}  // namespace lockstep
