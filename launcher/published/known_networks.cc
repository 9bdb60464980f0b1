#include "launcher/published/known_networks.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "launcher/published/networks.h"
#include "launcher/published/row_names.h"
#include "runtime/base/text.h"

namespace lockstep::published {
namespace {

struct Named {
  std::string_view name;  // with which the plain name begins
  TransformerShape shape;
};

constexpr Named kGpt[] = {
    {"mpt-125m", {12, 768, 0, 12, 0, 50432}},     {"mpt-350m", {24, 1024, 0, 16, 0, 50432}},
    {"mpt-760m", {24, 1536, 0, 12, 0, 50432}},    {"mpt-1b", {24, 2048, 0, 16, 0, 50432}},
    {"mpt-3b", {32, 2560, 0, 20, 0, 50432}},      {"mpt-7b", {32, 4096, 0, 32, 0, 50432}},
    {"mpt-13b", {40, 5120, 0, 40, 0, 50432}},     {"mpt-30b", {48, 7168, 0, 56, 0, 50432}},
    {"mpt-70b", {80, 8192, 0, 64, 0, 50432}},     {"gpt2-124m", {12, 768, 0, 12, 0, 50304}},
    {"gpt2-1558m", {48, 1600, 0, 25, 0, 50304}},  {"gpt2-1.5b", {48, 1600, 0, 25, 0, 50257}},
    {"gpt2-medium", {24, 1024, 0, 16, 0, 50257}}, {"gpt2-large", {36, 1280, 0, 20, 0, 50257}},
    {"gpt2-xl", {48, 1600, 0, 25, 0, 50257}},     {"gpt2", {12, 768, 0, 12, 0, 50257}},
    {"gpt2", {24, 1024, 0, 16, 0, 50257}},        {"gpt2", {36, 1280, 0, 20, 0, 50257}},
    {"gpt-j", {28, 4096, 0, 16, 0, 50400}},       {"gpt-neox", {44, 6144, 0, 64, 0, 50432}},
    {"gpt-3-175b", {96, 12288, 0, 96, 0, 51200}}, {"gpt3-175b", {96, 12288, 0, 96, 0, 51200}},
    {"bloom-7b", {30, 4096, 0, 32, 0, 250880}},   {"bloom", {70, 14336, 0, 112, 0, 250880}},
    {"falcon-7b", {32, 4544, 0, 71, 1, 65024}},   {"falcon-40b", {60, 8192, 0, 128, 8, 65024}},
};
constexpr Named kLlama[] = {
    {"llama-3.1-8b", {32, 4096, 14336, 32, 8, 128256}},
    {"llama-3-8b", {32, 4096, 14336, 32, 8, 128256}},
    {"llama-3.1-70b", {80, 8192, 28672, 64, 8, 128256}},
    {"llama-3.3-70b", {80, 8192, 28672, 64, 8, 128256}},
    {"llama-3-70b", {80, 8192, 28672, 64, 8, 128256}},
    {"llama-3.1-405b", {126, 16384, 53248, 128, 8, 128256}},
    {"llama-3.2-1b", {16, 2048, 8192, 32, 8, 128256, true}},
    {"llama-3.2-3b", {28, 3072, 8192, 24, 8, 128256, true}},
    {"llama-2-70b", {80, 8192, 28672, 64, 8, 32000}},
    {"llama-2-13b", {40, 5120, 13824, 40, 40, 32000}},
    {"llama-2-7b", {32, 4096, 11008, 32, 32, 32000}},
    {"llama-34b", {48, 8192, 22016, 64, 8, 32000}},
    {"llama-7b", {32, 4096, 11008, 32, 32, 32000}},
    {"llama-13b", {40, 5120, 13824, 40, 40, 32000}},
    {"llama-65b", {80, 8192, 22016, 64, 64, 32000}},
    {"tinyllama", {22, 2048, 5632, 32, 4, 32000}},
    {"mistral-7b", {32, 4096, 14336, 32, 8, 32000}},
    {"mathstral-7b", {32, 4096, 14336, 32, 8, 32768}},
    {"smollm2-135m", {30, 576, 1536, 9, 3, 49152, true}},
    {"smollm-135m", {30, 576, 1536, 9, 3, 49152, true}},
    {"qwen2.5-0.5b", {24, 896, 4864, 14, 2, 151936, true}},
    {"qwen2.5-1.5b", {28, 1536, 8960, 12, 2, 151936, true}},
    {"qwen2.5-7b", {28, 3584, 18944, 28, 4, 152064}},
    {"qwen2.5-14b", {48, 5120, 13824, 40, 8, 152064}},
    {"qwen2.5-32b", {64, 5120, 27648, 40, 8, 152064}},
    {"qwen2.5-72b", {80, 8192, 29568, 64, 8, 152064}},
};

// Whether a shape has about so many parameters; 0: as many as it likes.
bool has_parameters(const TransformerShape& shape, bool gated, double stated) {
  constexpr double kTolerance = 1.35;  // names round, and some leave out the embeddings
  const NetworkWork work = gated ? llama(1, 1, shape) : gpt(1, 1, shape, true, false);
  const double ratio = stated > 0 ? work.parameters / stated : 1;
  return ratio < kTolerance && ratio > 1 / kTolerance;
}

template <size_t kCount>
const TransformerShape* find(const Named (&named)[kCount],
                             bool gated,
                             const std::string& model,
                             double stated) {
  for (const Named& each : named)
    if (model.starts_with(each.name) && has_parameters(each.shape, gated, stated))
      return &each.shape;
  return nullptr;
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
  if (const int depth = std::abs(number_after(name, "vgg")); depth == 16 || depth == 19)
    return image_network([&](double batch) { return vgg(batch, depth); }, settings);
  if (name.starts_with("inception-v3")) return image_network(inception_v3, settings);
  for (const std::string_view prefix :
       {"se-resnext", "seresnext", "se-resnet", "seresnet", "wide-resnet", "resnext", "resnet"}) {
    ResNetShape shape;
    shape.depth = number_after(name, prefix);
    if (!name.starts_with(prefix)) continue;
    if (prefix.ends_with("resnext")) {
      const bool many = name.find("64x4d") != std::string::npos;
      const bool wide = name.find("32x8d") != std::string::npos;
      shape.groups = many ? 64 : 32;
      shape.width = wide ? 8 : 4;
    }
    if (prefix == "wide-resnet") shape.width = 128;
    shape.squeeze = prefix.starts_with("se");
    constexpr int kDepths[] = {18, 34, 50, 101, 152};
    if (std::ranges::find(kDepths, std::abs(shape.depth)) == std::end(kDepths)) continue;
    shape.depth = std::abs(shape.depth);
    return image_network([&](double batch) { return resnet(batch, shape); }, settings);
  }
  if (name == "mobilenet-v2" || name == "mobilenetv2" || name == "mobilenetv2-100")
    return image_network(mobile_net_v2, settings);
  if (name.starts_with("efficientnet-b") && name.size() > 14) {
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
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    TransformerShape shape = {12, 768, 0, 12};
    if (has("large") || has("vit-l")) shape = {24, 1024, 0, 16};
    if (has("small") || has("vit-s")) shape = {12, 384, 0, 6};
    if (has("tiny") || has("vit-t")) shape = {12, 192, 0, 3};
    if (has("huge") || has("vit-h")) shape = {32, 1280, 0, 16};
    const int patch = has("patch14") || has("-14") ? 14 : has("patch32") || has("-32") ? 32 : 16;
    return image_network([&](double batch) { return vit(batch, shape, image(224), patch); },
                         settings);
  }
  if (name.starts_with("u-net-medical")) return image_network(unet, settings, 16);
  const bool volumes_of_mlperf =
      name.starts_with("3d-u-net") || name.starts_with("u-net3d") || name.starts_with("u-net-3d");
  if (volumes_of_mlperf || name.starts_with("nnu-net")) {
    const bool volumes = volumes_of_mlperf || name.find("3d") != std::string::npos;
    return image_network(
        [&](double batch) { return nn_unet(batch, volumes); }, settings, volumes ? 4 : 256);
  }
  if (name.starts_with("ssd300") || name.starts_with("ssd-300"))
    return image_network(ssd300, settings, 128);
  if (name.starts_with("stable-diffusion") && name.find("xl") == std::string::npos)
    return image_network(
        [&](double batch) {
          return stable_diffusion(batch, name.find("mlperf") == std::string::npos);
        },
        settings);
  return std::nullopt;
}

// `model`: a plain name.
std::optional<NetworkWork> text_network(const PublishedRow& row,
                                        const std::string& model,
                                        const RowSettings& settings) {
  const auto has = [&](const char* part) { return model.find(part) != std::string::npos; };
  double batch = settings.batch, tokens = settings.tokens;
  if ((has("bert") && !has("deberta")) || model.starts_with("electra")) {
    const bool answers = has("squad");
    if (answers) tokens = 384;
    if (has("mlperf")) tokens = 512;
    if (tokens == 0) tokens = 128;
    // The usual batches of the scripts that do not say theirs.
    if (batch == 0) batch = tokens >= 512 ? 8 : settings.memory_gib > 28 ? 64 : 16;
    TransformerShape shape = {24, 1024, 0, 16, 0, 30528};
    if (has("base")) shape = {12, 768, 0, 12, 0, 30528};
    if (has("distil")) shape = {6, 768, 0, 12, 0, 30528};
    return bert(batch, tokens, shape, settings.fill, answers);
  }
  if (model.starts_with("transformer-xl"))
    return transformer_xl(std::max(1.0, batch), has("large"));
  if (model.starts_with("transformer-b"))
    return translation(batch > 0 ? batch : 5120,
                       has("big") ? TransformerShape{6, 1024, 4096, 16, 0, 33708}
                                  : TransformerShape{6, 512, 2048, 8, 0, 33708});
  if (tokens == 0) tokens = 2048;
  if (const int layers = number_after(model, "nanochat-d"); layers > 0)
    return gpt(batch > 0 ? batch : 16,
               tokens,
               {layers, 64.0 * layers, 0, layers / 2.0, 0, 65536},
               false,
               false);
  // Mixtures of experts compute with a part of their parameters.
  for (const char* mixture : {"moe", "mixtral", "8x", "-a3b", "deepseek"})
    if (has(mixture)) return std::nullopt;
  const double named = parameters_in(model);
  const double parameters = named > 0 ? named : row.number("params");
  if (const TransformerShape* shape = find(kLlama, true, model, named))
    return llama(batch > 0 ? batch : 8, tokens, *shape);
  const bool mpt = model.starts_with("mpt");
  const bool old = model.starts_with("gpt2") && row.has("model", "GPT2");
  if (const TransformerShape* shape = find(kGpt, false, model, named))
    return gpt(batch > 0 ? batch : 32, tokens, *shape, !mpt, old);
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
  const std::string model = plain_name(row.text("model"));
  std::optional<NetworkWork> network = convolutional(model, settings);
  if (!network) network = text_network(row, model, settings);
  if (!network) *why = "no count of the work of " + in_quotes(row.text("model"));
  return network;
}

}  // namespace lockstep::published
