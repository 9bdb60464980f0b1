// Vision Transformer (Dosovitskiy et al. 2020): a class token followed by the image's patches as
// tokens, learned positions, blocks of attention and of an MLP on a residual stream, layer norms
// before both and at the end, and a linear layer on the class token.
//
// Tensors are named as in Hugging Face's files, except that query, key and value are one matrix,
// attention.attention.qkv, with their rows one after the other.
//
// Initialisation: N(0, 0.02) for matrices, patches, class token and positions, biases 0, gammas 1.
#include <cmath>

#include "models/image_model.h"
#include "models/transformer.h"
#include "runtime/base/error.h"
#include "runtime/graph/ops/add.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/concat.h"
#include "runtime/graph/ops/dropout.h"
#include "runtime/graph/ops/rearrange.h"

namespace lockstep::models {
namespace {

constexpr const char* kPatches = "vit.embeddings.patch_embeddings.projection";
constexpr const char* kPositions = "vit.embeddings.position_embeddings";

class VitLayers : private TransformerLayers {
 public:
  VitLayers(const VitConfig& config, ImageLayers& layers)
      : TransformerLayers(layers.builder()), config_(config), layers_(layers), stream_(builder_) {}

  // Returns the logits.
  TensorId add() {
    stream_.begin(dropout("vit.embeddings.dropout", tokens()));
    stream_.add_blocks(
        config_.layers, "vit.encoder.layer.", [&](const std::string& name) { block(name); });
    const TensorId first = ops::select(builder_, "pooled", norm("vit.layernorm"), 1, 0);
    return layers_.linear(
        "classifier", first, config_.classes, Activation::kNone, InitialWeights::kNormal002);
  }

 private:
  TensorId tokens() {
    const TensorId patches = layers_.conv(
        kPatches,
        layers_.images(),
        {.outputs = config_.width, .kernel = config_.patch, .stride = config_.patch, .bias = true},
        InitialWeights::kNormal002);
    const Shape shape = builder_.shape(patches);
    const int64_t samples = shape[0], count = shape[1] * shape[2], width = config_.width;
    const TensorId class_token = parameter("vit.embeddings.cls_token", {width});
    const TensorId position = parameter(kPositions, {count + 1, width});
    const std::string name = "vit.embeddings";
    // Expanded, so that their gradients are sums in floats. In this order, the backward pass
    // finishes the class token's first.
    const TensorId positions =
        ops::expand(builder_, name + ".positions", position, {samples, count + 1, width});
    const TensorId first = ops::expand(builder_, name + ".first", class_token, {samples, 1, width});
    const TensorId others =
        ops::reshape(builder_, name + ".patches", patches, {samples, count, width});
    const TensorId x = ops::concat(builder_, name + ".tokens", {first, others}, 1);
    return ops::add(builder_, name, x, positions);
  }

  void block(const std::string& name) {
    const int64_t width = config_.width;
    const TensorId qkv = linear(
        name + "attention.attention.qkv",
        norm(name + "layernorm_before"),
        {.outputs = 3 * width, .bias = config_.qkv_bias, .row_parts = {width, width, width}});
    const TensorId mixed = ops::attention(
        builder_,
        name + "attention",
        qkv,
        {.heads = config_.heads, .causal = false, .dropout = config_.attention_dropout});
    branch(name + "attention.output", mixed);
    const TensorId up = linear(name + "intermediate.dense",
                               norm(name + "layernorm_after"),
                               {.outputs = config_.mlp_width, .activation = config_.activation});
    branch(name + "output", up);
  }

  void branch(const std::string& name, TensorId x) {
    const TensorId delta = linear(name + ".dense", x, {.outputs = config_.width});
    stream_.add(dropout(name + ".dropout", delta));
  }

  TensorId dropout(const std::string& name, TensorId x) {
    return ops::dropout(builder_, name, x, config_.dropout);
  }

  TensorId norm(const std::string& name) {
    return stream_.norm([&](TensorId x, TensorId delta) {
      return layer_norm(name, x, delta, config_.norm_epsilon);
    });
  }

  // As usual, weight decay applies neither to the class token nor to positions.
  TensorId parameter(const std::string& name, Shape shape) {
    return builder_.parameter(name, shape, {kNormal, kStd}, false);
  }

  const VitConfig& config_;
  ImageLayers& layers_;
  ResidualStream stream_;  // (B, tokens, C)
};

class Vit final : public ImageModel<VitConfig> {
 public:
  using ImageModel::ImageModel;

  void check() const override { check_heads(VitConfig::kName, config().heads, config().width); }

  config::ModelTraits traits() const override {
    config::ModelTraits traits = ImageModel::traits();
    traits.has_blocks = true;
    return traits;
  }

  // Assumes square images: the number of positions gives the number of patches.
  ModelIo io_of_weights(const ExtentsOf& extents_of) const override {
    const int64_t patches = extent(extents_of, kPositions, 0, 197) - 1;
    const auto across = static_cast<int64_t>(std::lround(std::sqrt(std::max<int64_t>(patches, 1))));
    ModelIo io;
    io.height = io.width = across * config().patch;
    io.channels = extent(extents_of, fmt::format("{}.weight", kPatches), 1, 3);
    io.mean.assign(static_cast<size_t>(io.channels), 0);
    io.std.assign(static_cast<size_t>(io.channels), 1);
    io.classes = extent(extents_of, "classifier.weight", 0, 1);
    return io;
  }

  double flops_per_sample(const ModelIo& io) const override {
    const int64_t tokens = (io.height / config().patch) * (io.width / config().patch) + 1;
    return Model::flops_per_sample(io) + attention_flops(tokens, config().width, config().layers);
  }

 private:
  void require_images(const ModelIo& io) const override {
    if (io.height > 0 && io.width > 0 && io.height % config().patch == 0 &&
        io.width % config().patch == 0)
      return;
    throw ConfigError(
        "model.vit.patch: value is {}; allowed: a divisor of height and width of the images, which "
        "are {} x {}",
        config().patch,
        io.height,
        io.width);
  }

  TensorId add_layers(ImageLayers& layers) const override {
    return VitLayers(config(), layers).add();
  }
};

}  // namespace

template <>
std::unique_ptr<const Model> make_model(const VitConfig& config) {
  return std::make_unique<Vit>(config);
}

}  // namespace lockstep::models
