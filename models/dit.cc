// Diffusion Transformer (Peebles and Xie 2022): a Vision Transformer that removes noise from
// images. Time and class of an image form one condition vector. Every block computes from it a
// shift, a scale and a gate for each of its two branches (adaLN-Zero). Norms have no parameters.
//
// Tensors are named as in the authors' code. The positions are sines and cosines in a frozen
// parameter (rows, columns, C), so that a file of weights records the size of the images.
//
// Initialisation: U(-b, b) with b = sqrt(6 / (fan in + fan out)) for matrices, N(0, 0.02) for
// classes and times. The layers that compute shifts, scales and gates begin with zeros, and so does
// the last layer: at first every block adds nothing, and the output is 0.
#include <cmath>

#include "models/diffusion_model.h"
#include "models/image_model.h"
#include "models/model.h"
#include "models/transformer.h"
#include "runtime/config/limits.h"
#include "runtime/graph/ops/activation.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/conv2d.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/ops/pointwise.h"
#include "runtime/graph/ops/rearrange.h"
#include "runtime/graph/ops/row_norm.h"

namespace lockstep::models {
namespace {

constexpr const char* kPatches = "x_embedder.proj";
constexpr const char* kPositions = "pos_embed";
constexpr const char* kClasses = "y_embedder.embedding_table.weight";

using F = graph::PointwiseFunction;

// (rows, columns, C): the first half of the features are sines, then cosines of the column; the
// second half those of the row.
std::vector<float> sine_positions(int64_t rows, int64_t columns, int64_t width) {
  std::vector<float> positions;
  const int64_t quarter = width / 4;
  const auto append = [&](int64_t coordinate) {
    for (const bool sine : {true, false}) {
      for (int64_t i = 0; i < quarter; ++i) {
        const double angle =
            static_cast<double>(coordinate) /
            std::pow(10000.0, static_cast<double>(i) / static_cast<double>(quarter));
        positions.push_back(static_cast<float>(sine ? std::sin(angle) : std::cos(angle)));
      }
    }
  };
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      append(column);
      append(row);
    }
  }
  return positions;
}

class DitLayers : private TransformerLayers {
 public:
  DitLayers(const DitConfig& config, const ModelIo& io, graph::GraphBuilder& builder)
      : TransformerLayers(builder),
        config_(config),
        rows_(io.height / config.patch),
        columns_(io.width / config.patch),
        channels_(io.channels) {}

  // Returns the prediction for each element of the noised images, (N, H W C).
  TensorId add(const DenoiserInputs& inputs) {
    const int64_t width = config_.width;
    samples_ = builder_.shape(inputs.images)[0];
    ones_ = builder_.constant(
        "norm.ones", {width}, std::vector<float>(static_cast<size_t>(width), 1.0f));
    TensorId x = tokens(inputs.images);
    const TensorId condition =
        ops::activation(builder_, "c.silu", condition_of(inputs), Activation::kSilu);
    for (int64_t i = 0; i < config_.layers; ++i) {
      builder_.begin_block();
      x = block("blocks." + std::to_string(i) + ".", x, condition);
      builder_.end_block();
    }
    const std::string last = "final_layer.";
    const TensorId changes = changes_of(last, condition, 2);
    const TensorId shift = change(last, changes, 0), scale = change(last, changes, 1);
    x = modulated(last + "norm_final", x, shift, scale);
    x = linear(
        last + "linear", x, {.outputs = config_.patch * config_.patch * channels_, .initial = {}});
    return images_of(x);
  }

 private:
  // (N, T, C)
  TensorId tokens(TensorId images) {
    const int64_t patch = config_.patch, width = config_.width;
    const Shape shape = {width, patch, patch, channels_};
    const TensorId weight = builder_.parameter(
        fmt::format("{}.weight", kPatches), shape, uniform(patch * patch * channels_, width), true);
    builder_.set_channels_last(weight, shape);
    graph::Conv2dAttributes attributes;
    attributes.stride = {patch, patch};
    const TensorId patches = ops::conv2d(builder_,
                                         kPatches,
                                         images,
                                         weight,
                                         constant(fmt::format("{}.bias", kPatches), width, 0),
                                         attributes);
    const auto elements = [rows = rows_, columns = columns_, width] {
      return sine_positions(rows, columns, width);
    };
    const TensorId positions =
        builder_.parameter(kPositions,
                           {rows_, columns_, width},
                           {.kind = graph::Initializer::Kind::kGiven, .elements = elements},
                           false);
    builder_[positions].frozen = true;
    const Shape one = {1, rows_ * columns_, width};
    graph::PointwiseProgram sum;
    sum.append(F::kAdd, sum.input(0), sum.input(1));
    return ops::pointwise(builder_,
                          "x",
                          {reshape("patches", patches, {samples_, rows_ * columns_, width}),
                           reshape("positions", positions, one)},
                          sum);
  }

  // (N, C): the embedding of the time plus that of the class.
  TensorId condition_of(const DenoiserInputs& inputs) {
    const int64_t width = config_.width;
    const TensorId first = linear("t_embedder.mlp.0",
                                  frequencies(inputs.times),
                                  {.outputs = width, .activation = Activation::kSilu});
    const TensorId time = linear("t_embedder.mlp.2", first, {.outputs = width});
    const TensorId table = matrix(kClasses, config_.classes + 1, width);
    const TensorId ids = reshape("y.ids", inputs.classes, {samples_, 1});
    const TensorId label = ops::embedding(builder_, "y_embedder", ids, table, kNoTensor);
    return ops::add(builder_, "c", time, reshape("y", label, {samples_, width}));
  }

  // (N, 256): cosines and sines of the times at 128 frequencies.
  TensorId frequencies(TensorId times) {
    constexpr int64_t kFrequencies = 128;
    std::vector<float> rates;
    for (int64_t i = 0; i < kFrequencies; ++i)
      rates.push_back(
          static_cast<float>(std::pow(10000.0, -static_cast<double>(i) / kFrequencies)));
    const TensorId table =
        builder_.constant("t.frequencies", {1, kFrequencies}, rates, DType::kF32);
    const TensorId column = reshape("t.column", times, {samples_, 1});
    std::vector<TensorId> parts;
    for (const auto& [name, function] :
         {std::pair("t.cos", F::kCos), std::pair("t.sin", F::kSin)}) {
      graph::PointwiseProgram program;
      program.append(function, program.append(F::kMul, program.input(0), program.input(1)));
      parts.push_back(ops::pointwise(builder_, name, {column, table}, program));
    }
    return ops::concat(builder_, "t", parts, 1);
  }

  TensorId block(const std::string& name, TensorId x, TensorId condition) {
    const int64_t width = config_.width;
    const TensorId changes = changes_of(name, condition, 6);
    TensorId parts[6];  // shift, scale and gate of attention, then of the MLP
    for (int64_t k = 0; k < 6; ++k) parts[k] = change(name, changes, k);
    TensorId y = modulated(name + "norm1", x, parts[0], parts[1]);
    y = dense(name + "attn.qkv", y, 3 * width, Activation::kNone, {width, width, width});
    y = ops::attention(builder_, name + "attn", y, {.heads = config_.heads, .causal = false});
    y = dense(name + "attn.proj", y, width);
    x = gated(name + "attn.sum", x, parts[2], y);
    y = modulated(name + "norm2", x, parts[3], parts[4]);
    y = dense(name + "mlp.fc1", y, mlp_width(), Activation::kGeluTanh);
    y = dense(name + "mlp.fc2", y, width);
    return gated(name + "mlp.sum", x, parts[5], y);
  }

  // (N, count, C): `count` shifts, scales and gates, computed from the condition.
  TensorId changes_of(const std::string& name, TensorId condition, int64_t count) {
    const std::string layer = name + "adaLN_modulation.1";
    const TensorId all =
        linear(layer, condition, {.outputs = count * config_.width, .initial = {}});
    return reshape(layer + ".parts", all, {samples_, count, config_.width});
  }
  // (N, 1, C): one of the shifts, scales and gates.
  TensorId change(const std::string& name, TensorId changes, int64_t number) {
    return ops::slice(builder_,
                      name + "change." + std::to_string(number),
                      changes,
                      {0, number, 0},
                      {1, 1, 1},
                      {samples_, 1, config_.width});
  }

  // norm(x) (1 + scale) + shift
  TensorId modulated(const std::string& name, TensorId x, TensorId shift, TensorId scale) {
    constexpr float kEpsilon = 1e-6f;
    const TensorId normed =
        ops::layer_norm(builder_, name, x, kNoTensor, ones_, kNoTensor, kEpsilon).second;
    graph::PointwiseProgram program;
    const int factor = program.append(F::kAdd, program.input(2), program.constant(1));
    program.append(F::kAdd, program.append(F::kMul, program.input(0), factor), program.input(1));
    return ops::pointwise(builder_, name + ".modulated", {normed, shift, scale}, program);
  }

  // x + gate * branch
  TensorId gated(const std::string& name, TensorId x, TensorId gate, TensorId branch) {
    graph::PointwiseProgram program;
    program.append(
        F::kAdd, program.input(0), program.append(F::kMul, program.input(1), program.input(2)));
    return ops::pointwise(builder_, name, {x, gate, branch}, program);
  }

  // Rearranges tokens (N, T, patch patch channels) to images (N, H W channels).
  TensorId images_of(TensorId x) {
    const int64_t patch = config_.patch;
    const TensorId patches =
        reshape("out.patches", x, {samples_, rows_, columns_, patch, patch * channels_});
    const TensorId rows = ops::transpose(builder_, "out.rows", patches, {0, 1, 3, 2, 4});
    return reshape("out", rows, {samples_, rows_ * columns_ * patch * patch * channels_});
  }

  TensorId reshape(const std::string& name, TensorId x, const Shape& shape) {
    return ops::reshape(builder_, name, x, shape);
  }

  static graph::Initializer uniform(int64_t inputs, int64_t outputs) {
    return {graph::Initializer::Kind::kUniform,
            std::sqrt(6 / static_cast<float>(inputs + outputs))};
  }

  TensorId dense(const std::string& name,
                 TensorId x,
                 int64_t outputs,
                 Activation activation = Activation::kNone,
                 const std::vector<int64_t>& row_parts = {}) {
    return linear(name,
                  x,
                  {.outputs = outputs,
                   .activation = activation,
                   .row_parts = row_parts,
                   .initial = uniform(builder_.shape(x).columns(), outputs)});
  }

  int64_t mlp_width() const {
    return std::max<int64_t>(
        1,
        std::lround(static_cast<double>(config_.mlp_ratio) * static_cast<double>(config_.width)));
  }

  const DitConfig& config_;
  int64_t rows_, columns_;  // of patches
  int64_t channels_;        // of the images
  int64_t samples_ = 0;
  TensorId ones_ = kNoTensor;
};

class Dit final : public Model {
 public:
  explicit Dit(const DitConfig& config) : config_(config) {}

  void check() const override {
    if (config_.width % 4 != 0)
      config::refuse_value("model.dit.width", config_.width, "a multiple of 4");
    check_heads(DitConfig::kName, config_.heads, config_.width);
    check_diffusion("model.dit", config_.schedule, config_.target);
  }

  config::ModelTraits traits() const override {
    return {.input = config::ModelInput::kImages,
            .loss = Loss::kMeanSquaredError,
            .outputs = config_.classes,
            .outputs_field = "classes",
            .diffusion = config::DiffusionTraits{.schedule = config_.schedule,
                                                 .target = config_.target,
                                                 .without_classes = config_.label_dropout > 0},
            .has_blocks = true};
  }

  ModelConfig resolve(const ModelIo& io) const override {
    if (io.height % config_.patch != 0 || io.width % config_.patch != 0)
      config::refuse_value("model.dit.patch",
                           config_.patch,
                           "a divisor of height and width of the images, which are {} x {}",
                           io.height,
                           io.width);
    DitConfig config = config_;
    config.classes = resolve_classes(config.classes, io, DitConfig::kName);
    return config;
  }

  ModelIo io_of_weights(const ExtentsOf& extents_of) const override {
    ModelIo io;
    io.height = extent(extents_of, kPositions, 0, 14) * config_.patch;
    io.width = extent(extents_of, kPositions, 1, 14) * config_.patch;
    io.channels = extent(extents_of, fmt::format("{}.weight", kPatches), 1, 3);
    io.classes = extent(extents_of, kClasses, 0, 2) - 1;
    return io;
  }

  graph::Graph build(const ModelIo& io,
                     int64_t lane_batch,
                     int64_t /*tokens*/,
                     const graph::GraphOptions& options) const override {
    graph::GraphBuilder builder(options);
    const DenoiserInputs inputs = denoiser_inputs(builder,
                                                  io,
                                                  lane_batch,
                                                  {.schedule = config_.schedule,
                                                   .target = config_.target,
                                                   .label_dropout = config_.label_dropout,
                                                   .classes = config_.classes});
    end_denoiser(builder, DitLayers(config_, io, builder).add(inputs), inputs);
    return std::move(builder).finish();
  }

  double flops_per_sample(const ModelIo& io) const override {
    const int64_t tokens = (io.height / config_.patch) * (io.width / config_.patch);
    return Model::flops_per_sample(io) + attention_flops(tokens, config_.width, config_.layers);
  }

 private:
  DitConfig config_;
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const DitConfig& config) {
  return std::make_unique<Dit>(config);
}

}  // namespace lockstep::models
