#include "launcher/published/known_networks.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "launcher/published/networks.h"
#include "runtime/base/text.h"

namespace lockstep::published {
namespace {

struct Named {
  std::string_view name;  // with which the row's begins
  TransformerShape shape;
};

constexpr Named kGpt[] = {
    {"MPT-125m", {12, 768, 0, 12, 0, 50432}},
    {"MPT-350m", {24, 1024, 0, 16, 0, 50432}},
    {"MPT-760m", {24, 1536, 0, 12, 0, 50432}},
    {"MPT-1b", {24, 2048, 0, 16, 0, 50432}},
    {"MPT-3b", {32, 2560, 0, 20, 0, 50432}},
    {"MPT-7b", {32, 4096, 0, 32, 0, 50432}},
    {"MPT-13b", {40, 5120, 0, 40, 0, 50432}},
    {"MPT-30b", {48, 7168, 0, 56, 0, 50432}},
    {"MPT-70b", {80, 8192, 0, 64, 0, 50432}},
    {"GPT-2 124M", {12, 768, 0, 12, 0, 50304}},
    {"GPT-2 1558M", {48, 1600, 0, 25, 0, 50304}},
    {"GPT2-medium", {24, 1024, 0, 16, 0, 50257}},
    {"GPT2-large", {36, 1280, 0, 20, 0, 50257}},
    {"GPT2-xl", {48, 1600, 0, 25, 0, 50257}},
    {"GPT2", {12, 768, 0, 12, 0, 50257}},
    {"GPT-J", {28, 4096, 0, 16, 0, 50400}},
    {"GPT-NeoX", {44, 6144, 0, 64, 0, 50432}},
    {"GPT-3 175B", {96, 12288, 0, 96, 0, 51200}},
};
constexpr Named kLlama[] = {
    {"Llama-3.1-8B", {32, 4096, 14336, 32, 8, 128256}},
    {"Llama-3-8B", {32, 4096, 14336, 32, 8, 128256}},
    {"Llama-3.1-70B", {80, 8192, 28672, 64, 8, 128256}},
    {"Llama-3-70B", {80, 8192, 28672, 64, 8, 128256}},
    {"Llama-3.1-405B", {126, 16384, 53248, 128, 8, 128256}},
    {"Llama-3.2-1B", {16, 2048, 8192, 32, 8, 128256, true}},
    {"Llama-3.2-3B", {28, 3072, 8192, 24, 8, 128256, true}},
    {"Llama-2-70B", {80, 8192, 28672, 64, 8, 32000}},
    {"Llama-2-13B", {40, 5120, 13824, 40, 40, 32000}},
    {"Llama-2-7B", {32, 4096, 11008, 32, 32, 32000}},
    {"Llama 34B", {48, 8192, 22016, 64, 8, 32000}},
    {"TinyLlama", {22, 2048, 5632, 32, 4, 32000}},
    {"Mistral-7B", {32, 4096, 14336, 32, 8, 32000}},
    {"Mathstral-7B", {32, 4096, 14336, 32, 8, 32768}},
    {"SmolLM2-135M", {30, 576, 1536, 9, 3, 49152, true}},
    {"Qwen2.5-7B", {28, 3584, 18944, 28, 4, 152064}},
};

template <size_t kCount>
const TransformerShape* find(const Named (&named)[kCount], const std::string& model) {
  for (const Named& each : named)
    if (model.starts_with(each.name)) return &each.shape;
  return nullptr;
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// The number in a name after a prefix: 101 in "ResNet-101".
int number_after(const std::string& name, std::string_view prefix) {
  const size_t at = name.find(prefix);
  if (at == std::string::npos) return 0;
  return std::atoi(name.c_str() + at + prefix.size());
}

// A decoder of unknown shape with these parameters: some 128 channels of width for each layer.
TransformerShape shape_of(double parameters) {
  constexpr double kWidthOfLayer = 128, kHead = 128, kVocabulary = 50304;
  const double width = std::cbrt(parameters * kWidthOfLayer / 12);
  const double rounded = std::max(kHead, std::round(width / kHead) * kHead);
  const double layers =
      std::max(1.0, std::round((parameters - kVocabulary * rounded) / (12 * rounded * rounded)));
  return {static_cast<int>(layers), rounded, 0, rounded / kHead, 0, kVocabulary};
}

using Maker = std::function<NetworkWork(double batch)>;

// The largest usual batch, up to `cap`, whose activations fit. About half of the tensors that walks
// read are kept for backward.
double batch_that_fits(const Maker& make, const RowSettings& settings, double cap) {
  constexpr double kBatches[] = {512, 256, 128, 96, 64, 48, 32, 16, 8, 4, 2};
  constexpr double kKept = 0.55, kUsable = 0.85;
  const double bytes = make(1).activations() * (settings.half ? 2 : 4) * kKept;
  for (const double batch : kBatches)
    if (batch <= cap && batch * bytes < settings.memory_gib * 0x1p30 * kUsable) return batch;
  return 1;
}

NetworkWork image_network(const Maker& make, const RowSettings& settings, double cap = 256) {
  return make(settings.batch > 0 ? settings.batch : batch_that_fits(make, settings, cap));
}

std::optional<NetworkWork> convolutional(const std::string& name, const RowSettings& settings) {
  const auto image = [&](double usual) {
    return static_cast<int>(settings.tokens > 0 ? settings.tokens : usual);
  };
  if (name.starts_with("vgg-16") || name.starts_with("vgg16"))
    return image_network(vgg16, settings);
  if (name.starts_with("inception v3")) return image_network(inception_v3, settings);
  for (const std::string_view prefix :
       {"se-resnext", "seresnext", "se-resnet", "seresnet", "resnext", "resnet"}) {
    ResNetShape shape;
    shape.depth = number_after(name, prefix);
    if (!name.starts_with(prefix)) continue;
    if (prefix.ends_with("resnext")) {
      shape.groups = 32;
      shape.width = 4;
    }
    shape.squeeze = prefix.starts_with("se");
    constexpr int kDepths[] = {18, 34, 50, 101, 152};
    if (std::ranges::find(kDepths, std::abs(shape.depth)) == std::end(kDepths)) continue;
    shape.depth = std::abs(shape.depth);
    return image_network([&](double batch) { return resnet(batch, shape); }, settings);
  }
  if (name.starts_with("efficientnet-b") || name.starts_with("efficientnet_b")) {
    const int variant = name[14] - '0';
    if (variant < 0 || variant > 7) return std::nullopt;
    return image_network([&](double batch) { return efficient_net(batch, variant, image(224)); },
                         settings);
  }
  if (name.starts_with("convnext")) {
    const auto has = [&](const char* size) { return name.find(size) != std::string::npos; };
    ConvNextShape shape;
    if (has("tiny") || has("small")) shape.width = 96;
    if (has("tiny")) shape.blocks = 9;
    if (has("large")) shape.width = has("xlarge") ? 256 : 192;
    return image_network([&](double batch) { return convnext(batch, shape); }, settings);
  }
  if (name.starts_with("vit") || name.starts_with("deit")) {
    TransformerShape shape = {12, 768, 0, 12};
    if (name.find("large") != std::string::npos) shape = {24, 1024, 0, 16};
    if (name.find("small") != std::string::npos) shape = {12, 384, 0, 6};
    if (name.find("huge") != std::string::npos) shape = {32, 1280, 0, 16};
    const int patch = name.find("patch14") != std::string::npos   ? 14
                      : name.find("patch32") != std::string::npos ? 32
                                                                  : 16;
    return image_network([&](double batch) { return vit(batch, shape, image(224), patch); },
                         settings);
  }
  if (name.starts_with("u-net medical")) return image_network(unet, settings, 16);
  const bool volumes_of_mlperf = name.starts_with("3d u-net") || name.starts_with("u-net3d") ||
                                 name.starts_with("unet3d") || name.starts_with("3d-unet");
  if (volumes_of_mlperf || name.starts_with("nnu-net")) {
    const bool volumes = volumes_of_mlperf || name.find("3d") != std::string::npos;
    return image_network(
        [&](double batch) { return nn_unet(batch, volumes); }, settings, volumes ? 4 : 256);
  }
  if (name.starts_with("ssd300")) return image_network(ssd300, settings, 128);
  if (name.starts_with("stable diffusion") && name.find("xl") == std::string::npos)
    return image_network(
        [&](double batch) {
          return stable_diffusion(batch, name.find("mlperf") == std::string::npos);
        },
        settings);
  return std::nullopt;
}

std::optional<NetworkWork> text_network(const PublishedRow& row,
                                        const std::string& model,
                                        const RowSettings& settings) {
  double batch = settings.batch, tokens = settings.tokens;
  if (model.starts_with("BERT") || model.starts_with("RoBERTa") || model.starts_with("ELECTRA")) {
    const bool answers = model.find("SQuAD") != std::string::npos;
    if (answers) tokens = 384;
    if (model.find("MLPerf") != std::string::npos) tokens = 512;
    if (tokens == 0) tokens = 128;
    const bool base = model.find("base") != std::string::npos;
    // The usual batches of the scripts that do not say theirs.
    if (batch == 0) batch = tokens >= 512 ? 8 : settings.memory_gib > 28 ? 64 : 16;
    const TransformerShape shape = base ? TransformerShape{12, 768, 0, 12, 0, 30528}
                                        : TransformerShape{24, 1024, 0, 16, 0, 30528};
    return bert(batch, tokens, shape, settings.fill, answers);
  }
  if (model.starts_with("Transformer-XL"))
    return transformer_xl(std::max(1.0, batch), model.find("large") != std::string::npos);
  if (model.starts_with("Transformer b")) {
    const bool big = model.find("big") != std::string::npos;
    return translation(batch > 0 ? batch : 5120,
                       big ? TransformerShape{6, 1024, 4096, 16, 0, 33708}
                           : TransformerShape{6, 512, 2048, 8, 0, 33708});
  }
  if (tokens == 0) tokens = 2048;
  if (const TransformerShape* shape = find(kLlama, model))
    return llama(batch > 0 ? batch : 8, tokens, *shape);
  const bool mpt = model.starts_with("MPT");
  const bool old = model.starts_with("GPT2");
  if (const TransformerShape* shape = find(kGpt, model))
    return gpt(batch > 0 ? batch : 32, tokens, *shape, !mpt, old);
  if (const int layers = number_after(model, "nanochat d"); layers > 0)
    return gpt(batch > 0 ? batch : 16,
               tokens,
               {layers, 64.0 * layers, 0, layers / 2.0, 0, 65536},
               false,
               false);
  // Mixtures of experts compute with a part of their parameters.
  for (const std::string_view mixture : {"MoE", "Mixtral", "8x"})
    if (model.find(mixture) != std::string::npos) return std::nullopt;
  const double parameters = row.number("params");
  const std::string& kind = row.text("kind");
  if (parameters > 0 && (kind == "gpt" || kind == "llama"))
    return gpt(batch > 0 ? batch : 8, tokens, shape_of(parameters), false, false);
  return std::nullopt;
}

}  // namespace

double fill_of(const PublishedRow& row, const TrainerConstants& constants) {
  if (row.text("kind") != "bert") return 1;
  if (row.has("version", "MLPerf")) return constants.mlperf_fill;
  const bool skips = row.has("framework", "apex, LAMB") || row.has("framework", "Paddle");
  const bool answers = row.has("model", "SQuAD");
  return skips && !answers && row.text("seq_or_image").starts_with("512")
             ? constants.pretraining_fill
             : 1;
}

std::optional<NetworkWork> network_of(const PublishedRow& row,
                                      const RowSettings& settings,
                                      std::string* why) {
  const std::string& model = row.text("model");
  std::optional<NetworkWork> network = convolutional(lower(model), settings);
  if (!network) network = text_network(row, model, settings);
  if (!network) *why = "no count of the work of " + in_quotes(model);
  return network;
}

}  // namespace lockstep::published
