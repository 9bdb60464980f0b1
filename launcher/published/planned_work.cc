#include "launcher/published/planned_work.h"

#include <fmt/core.h>

#include <algorithm>
#include <variant>

#include "runtime/graph/activation.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/batched_matmul.h"
#include "runtime/graph/ops/conv_transpose2d.h"
#include "runtime/graph/ops/ctc_loss.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/gated_activation.h"
#include "runtime/graph/ops/linear.h"
#include "runtime/graph/ops/linear_cross_entropy.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/graph/ops/qk_norm.h"
#include "runtime/graph/ops/rotary.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::published {
namespace {

using graph::OpKind;

class GraphCounter {
 public:
  explicit GraphCounter(const run::PreparedRun& prepared)
      : graph_(prepared.graphs->training), net_(planned_.network) {
    const config::ModelTraits& traits = prepared.model->traits();
    if (traits.text_task == config::TextTask::kMaskedTokens)
      if (const auto* tokens = std::get_if<TokensConfig>(&prepared.config.data.source))
        masked_ = tokens->mask_share;
    for (const TensorId id : graph_.parameters) {
      frozen_ |= graph_[id].frozen;
      planned_.adapters |= graph::is_lora(graph_[id].name);
    }
  }

  PlannedWork count() && {
    for (size_t i = 0; i < graph_.forward_ops && planned_.uncounted.empty(); ++i) {
      const graph::Op& op = graph_.ops[i];
      begin(op);
      add(op);
    }
    count_parameters();
    return std::move(planned_);
  }

 private:
  double elements(TensorId id) const {
    return static_cast<double>(graph_.shape(id).elements()) * share_;
  }
  bool of_images(TensorId id) const { return graph_.shape(id).rank() == 4; }

  // Follows the parameters of an op: whether it belongs to the head, and whether it is trained.
  void begin(const graph::Op& op) {
    for (const TensorId id : op.inputs) {
      if (id == kNoTensor || graph_[id].role != graph::Role::kParameter) continue;
      const graph::Tensor& parameter = graph_[id];
      if (graph_.blocks > 0 && parameter.level > graph_.blocks && !in_head_) {
        in_head_ = true;
        net_.end_body();
        // Only tokens that were hidden have a loss, and tuned trainers compute no others.
        share_ = masked_;
      }
      if (!frozen_ || planned_.adapters || parameter.running_momentum > 0) continue;
      if (parameter.frozen && has_gradient(op)) uncount("frozen layers above trained ones");
      net_.set_trained(!parameter.frozen);
    }
  }

  // Whether the graph has the backward op of a forward op.
  bool has_gradient(const graph::Op& op) const {
    const auto differentiates = [&](const graph::Op& other) {
      return other.name == op.name && other.kind != op.kind &&
             other.kind != OpKind::kBatchNormRunning;
    };
    return std::any_of(graph_.ops.begin() + static_cast<ptrdiff_t>(graph_.forward_ops),
                       graph_.ops.end(),
                       differentiates);
  }

  void uncount(const std::string& what) {
    planned_.uncounted = "the work of " + what + " is not counted";
  }

  void add(const graph::Op& op) {
    const graph::OpCall call(graph_, op);
    const TensorId in = op.inputs.first(), out = op.outputs.first();
    switch (op.kind) {
      // Ops on inputs and statistics, and those that move nothing.
      case OpKind::kPackedTokens:
      case OpKind::kImageNormalize:
      case OpKind::kDiffusionNoise:
      case OpKind::kTargetPart:
      case OpKind::kReshape:
      case OpKind::kBatchStatistics:
      case OpKind::kGatherLanes:
      case OpKind::kContrastiveSums:
      case OpKind::kTotalLoss:
      case OpKind::kCountRows:
      // Adapters are small beside the layers that they change.
      case OpKind::kLoraAdd: return;
      case OpKind::kCast: return net_.walk(elements(out), {2, 2}, {0, 0});

      case OpKind::kLinear: return add_linear(op, call);
      case OpKind::kConv2d: return add_convolution(op, graph::conv2d_shape(call));
      case OpKind::kConvTranspose2d: return add_transposed(op, graph::conv2d_shape(call));
      case OpKind::kBatchedMatmul: return add_products(graph::BatchedMatmul<std::byte>{call}.sizes);
      case OpKind::kAttention: return add_attention(op, call);

      case OpKind::kEmbedding: {
        const bool positions = op.inputs[graph::EmbeddingIn::kPosition] != kNoTensor;
        const Passes passes = positions ? Passes{3, 4} : Passes{1, 2};
        return net_.walk(elements(out), passes, passes, passes, passes);
      }
      case OpKind::kLayerNorm:
      case OpKind::kRmsNorm: return add_norm(op);
      case OpKind::kQkNorm: {
        const graph::QkNormSizes sizes =
            graph::QkNormSizes::of(graph_.shape(in), op.as<graph::QkNormAttributes>());
        return add_rms_norm(static_cast<double>(sizes.tokens * sizes.rest));
      }
      case OpKind::kRotary: {
        const auto& rotary = op.as<graph::RotaryAttributes>();
        const double rotated = static_cast<double>(rotary.rotated_heads * rotary.head_size);
        const double width = static_cast<double>(graph_.shape(in).columns());
        return net_.walk(elements(in) * rotated / width, {6, 6}, {2, 2}, {2, 2}, {6, 6});
      }
      case OpKind::kGatedActivation:
        return net_.walk(elements(out), {5, 7}, {3, 5}, {3, 5}, {2, 3});
      case OpKind::kActivation: {
        const auto activation = op.as<graph::ActivationAttributes>().activation;
        return add_activation(activation, elements(out), of_images(out));
      }
      case OpKind::kDropout: return net_.walk(elements(out), {2.5, 2.5}, {0.5, 0.5});
      case OpKind::kAdd: return add_residual(out);
      case OpKind::kBatchNorm: return add_batch_norm(op);
      case OpKind::kGroupNorm: return net_.walk(elements(out), {8, 10});
      case OpKind::kLocalResponseNorm: return net_.walk(elements(out), {3, 5});

      case OpKind::kMaxPool: {
        const double written = elements(out) / elements(in);
        return net_.walk(elements(in), {1 + written, 2 + 2 * written});
      }
      case OpKind::kAvgPool:
      case OpKind::kGlobalAvgPool:
      case OpKind::kTokenPooling:
      case OpKind::kReduce: return net_.walk(elements(in) + elements(out), {1, 1});
      case OpKind::kResize:
      case OpKind::kGather:
      case OpKind::kGatherElements:
      case OpKind::kConcat: return net_.walk(elements(out), {2, 2});
      case OpKind::kUnitRows: return net_.walk(elements(in), {3, 4});
      case OpKind::kRandomNormal: return net_.walk(elements(out), {1, 0});
      case OpKind::kRearrange: return net_.walk(elements(out), {2, 2}, {1, 1});
      case OpKind::kSoftmax: return net_.walk(elements(out), {2, 3});
      case OpKind::kPointwise: {
        const auto reads = static_cast<double>(op.inputs.size());
        return net_.walk(elements(out), {reads + 1, reads + 2}, {1, 1});
      }

      case OpKind::kLinearCrossEntropy:
      case OpKind::kSequenceLogProb: {
        const auto shape =
            graph::LinearShape::of(graph_.shape(op.inputs[graph::LinearCrossEntropyIn::kX]),
                                   graph_.shape(op.inputs[graph::LinearCrossEntropyIn::kWeight]));
        const double rows = static_cast<double>(shape.rows) * share_;
        add_product(rows, shape);
        return add_loss(rows * static_cast<double>(shape.outputs));
      }
      case OpKind::kSoftmaxCrossEntropy:
      case OpKind::kContrastive: return add_loss(elements(in));
      case OpKind::kCtcLoss: {
        // Each frame has a state for each symbol and for each blank around the symbols.
        const graph::CtcLoss<float> ctc{call};
        const double symbols = static_cast<double>(ctc.record - graph::kCtcFirstSymbol);
        add_loss(elements(in));
        return net_.walk(static_cast<double>(ctc.samples * ctc.frames) * (2 * symbols + 1), {2, 4});
      }
      case OpKind::kGivenLoss: return net_.walk(elements(in), {1, 1});
      case OpKind::kBinaryCrossEntropy:
      case OpKind::kPreferenceLoss:
      case OpKind::kMeanSquaredError:
      case OpKind::kMeanAbsoluteError:
      case OpKind::kHuber:
      case OpKind::kSoftCrossEntropy: return net_.walk(elements(in), {4, 3}, {3, 2});

      // Its steps wait for each other, and no published figures are of such networks.
      case OpKind::kRecurrent: return uncount(graph::name_of(op.kind));

      // Not in the forward pass of a training graph. They are listed so that the compiler reports
      // a kind that is forgotten above.
      case OpKind::kLinearBackward:
      case OpKind::kLoraAddBackward:
      case OpKind::kActivationBackward:
      case OpKind::kEmbeddingBackward:
      case OpKind::kLayerNormBackward:
      case OpKind::kRmsNormBackward:
      case OpKind::kAttentionBackward:
      case OpKind::kDropoutBackward:
      case OpKind::kConv2dBackward:
      case OpKind::kConv2dBatchNorm:
      case OpKind::kBatchNormBackward:
      case OpKind::kBatchNormSums:
      case OpKind::kBatchNormInputGradient:
      case OpKind::kBatchNormRunning:
      case OpKind::kMaxPoolBackward:
      case OpKind::kAvgPoolBackward:
      case OpKind::kGlobalAvgPoolBackward:
      case OpKind::kLocalResponseNormBackward:
      case OpKind::kSequenceLogProbBackward:
      case OpKind::kUnitRowsBackward:
      case OpKind::kQkNormBackward:
      case OpKind::kTokenPoolingBackward:
      case OpKind::kRotaryBackward:
      case OpKind::kCachedAttention:
      case OpKind::kGatedActivationBackward:
      case OpKind::kRearrangeBackward:
      case OpKind::kConcatBackward:
      case OpKind::kGatherBackward:
      case OpKind::kGatherElementsBackward:
      case OpKind::kSoftmaxBackward:
      case OpKind::kGroupNormBackward:
      case OpKind::kResizeBackward:
      case OpKind::kConvTranspose2dBackward:
      case OpKind::kRecurrentBackward:
      case OpKind::kCount: return;
    }
  }

  void add_product(double rows, const graph::LinearShape& shape) {
    net_.linear(rows, static_cast<double>(shape.outputs), static_cast<double>(shape.inputs), true);
  }

  void add_linear(const graph::Op& op, const graph::OpCall& call) {
    if (graph::is_lora(graph_[op.inputs[graph::LinearIn::kWeight]].name)) return;
    const graph::LinearForward<std::byte> linear{call};
    const double output = elements(op.outputs[graph::LinearOut::kY]);
    add_product(static_cast<double>(linear.shape.rows) * share_, linear.shape);
    const bool activates = linear.activation != Activation::kNone;
    if (op.inputs[graph::LinearIn::kBias] != kNoTensor) {
      // The gradient of the bias is a sum over that of the output. Fused activations compute it.
      const Passes fused = {0, activates ? 0.0 : 1.0};
      net_.walk(output, {0, 1}, fused, fused, {0, 0});
    }
    if (activates) add_activation(linear.activation, output, false);
  }

  void add_activation(Activation activation, double count, bool images) {
    if (activation == Activation::kNone) return;
    if (!images) return net_.walk(count, {2, 3}, {2, 3}, {1, 2});
    const bool reads_input = graph::saves_pre_activation(activation);
    net_.walk(count, {2, 3}, {0, reads_input ? 1.0 : 0.0});
  }

  void add_residual(TensorId sum) {
    net_.walk(elements(sum), of_images(sum) ? Passes{3, 3} : Passes{3, 2}, {1, 1});
  }

  void add_rms_norm(double count) { net_.walk(count, {8, 12}, {2, 4}, {2, 4}, {6, 8}); }

  void add_norm(const graph::Op& op) {
    const TensorId x = op.inputs[graph::RowNormIn::kX];
    if (op.inputs[graph::RowNormIn::kDelta] != kNoTensor) add_residual(x);
    if (op.kind == OpKind::kRmsNorm) return add_rms_norm(elements(x));
    net_.walk(elements(x), {2, 4}, {2, 4}, {2, 4}, {1, 2});
  }

  void add_batch_norm(const graph::Op& op) {
    const TensorId y = op.outputs[graph::BatchNormOut::kY];
    net_.batch_norm(elements(y));
    if (op.inputs[graph::BatchNormIn::kDelta] != kNoTensor) add_residual(y);
    add_activation(op.as<graph::BatchNormAttributes>().activation, elements(y), true);
  }

  void add_loss(double logits) { net_.walk(logits, {9, 8}, {3, 3}, {3, 3}, {4, 4}); }

  void add_convolution(const graph::Op& op, const graph::Conv2dShape& s) {
    const double input = elements(op.inputs[graph::Conv2dIn::kX]);
    const double output = elements(op.outputs[graph::Conv2dOut::kY]);
    const auto taps = static_cast<double>(s.kernel_h * s.kernel_w);
    const auto groups = static_cast<double>(s.groups);
    if (s.groups == s.channels && s.channels > 1) {
      net_.depthwise({input, output, taps}, 0);
    } else {
      const auto n = static_cast<double>(s.group_outputs()), k = static_cast<double>(s.patch());
      net_.product(
          {.m = static_cast<double>(s.out_pixels()),
           .n = n,
           .k = k,
           .count = groups,
           .elements = input + output + groups * n * k,
           .taps = taps,
           .convolution = true,
           .winograd = s.kernel_h == 3 && s.kernel_w == 3 && s.stride_h == 1 && s.stride_w == 1},
          0);
    }
    if (op.inputs[graph::Conv2dIn::kBias] != kNoTensor) net_.walk(output, {2, 1}, {0, 1});
    add_activation(op.as<graph::Conv2dAttributes>().activation, output, true);
  }

  // `back`: the convolution from the images of y to those of x.
  void add_transposed(const graph::Op& op, const graph::Conv2dShape& back) {
    const double input = elements(op.inputs[graph::ConvTranspose2dIn::kX]);
    const double output = elements(op.outputs[graph::ConvTranspose2dOut::kY]);
    net_.product({.m = static_cast<double>(back.out_pixels()),
                  .n = static_cast<double>(back.patch()),
                  .k = static_cast<double>(back.group_outputs()),
                  .count = static_cast<double>(back.groups),
                  .elements = input + output,
                  .convolution = true},
                 0);
    if (op.inputs[graph::ConvTranspose2dIn::kBias] != kNoTensor) net_.walk(output, {2, 1}, {0, 1});
  }

  void add_products(const graph::BatchedProducts& sizes) {
    net_.product({.m = static_cast<double>(sizes.m),
                  .n = static_cast<double>(sizes.n),
                  .k = static_cast<double>(sizes.k * sizes.sums.count()),
                  .count = static_cast<double>(sizes.products.count())},
                 0);
  }

  void add_attention(const graph::Op& op, const graph::OpCall& call) {
    const graph::AttentionShape s = graph::AttentionForward<std::byte>{call}.shape;
    // Packed documents count as one: other trainers let them attend to each other, or do not.
    double keys = static_cast<double>(s.time);
    if (s.window > 0) {
      int64_t pairs = 0;
      for (int64_t t = 0; t < s.time; ++t) pairs += s.keys_end(t) - s.first_key(t);
      keys = static_cast<double>(pairs) / static_cast<double>(s.time);
    }
    // Others bring heads together, and apart again.
    net_.walk(elements(op.inputs[graph::AttentionIn::kQkv]), {2, 2}, {1, 1}, {0, 0});
    net_.attention({.heads = static_cast<double>(s.batch * s.heads),
                    .queries = static_cast<double>(s.time),
                    .keys = keys,
                    .size = static_cast<double>(s.head_size),
                    .causal = s.causal && s.window == 0});
    net_.walk(elements(op.outputs[graph::AttentionOut::kY]), {2, 2}, {1, 1}, {0, 0});
  }

  void count_parameters() {
    std::vector<TensorId> tables;
    for (size_t i = 0; i < graph_.forward_ops; ++i)
      if (graph_.ops[i].kind == OpKind::kEmbedding)
        tables.push_back(graph_.ops[i].inputs[graph::EmbeddingIn::kToken]);
    for (const TensorId id : graph_.parameters) {
      const graph::Tensor& parameter = graph_[id];
      if (parameter.running_momentum > 0 || graph::is_lora(parameter.name)) continue;
      if (parameter.frozen && !planned_.adapters) continue;
      const auto count = static_cast<double>(parameter.shape.elements());
      planned_.network.parameters += count;
      if (std::ranges::find(tables, id) != tables.end()) planned_.network.late_parameters += count;
    }
  }

  const graph::Graph& graph_;
  PlannedWork planned_;
  WorkCounter net_;
  double masked_ = 1;  // the share of tokens that have a loss
  double share_ = 1;   // of the rows that are computed
  bool frozen_ = false, in_head_ = false;
};

}  // namespace

PlannedWork work_of(const run::PreparedRun& prepared) {
  PlannedWork planned = GraphCounter(prepared).count();
  const int64_t lanes = prepared.plan.sharding.lanes;
  planned.network.samples = static_cast<double>(prepared.config.train.global_batch) /
                            static_cast<double>(std::max<int64_t>(1, lanes));
  planned.network.tokens_of_sample =
      static_cast<double>(std::max<int64_t>(1, prepared.model->traits().context));
  if (planned.uncounted.empty() && !prepared.graphs->length_bucket_training.empty())
    planned.uncounted = "the lengths of samples decide the work (execution.length_buckets)";
  return planned;
}

}  // namespace lockstep::published
