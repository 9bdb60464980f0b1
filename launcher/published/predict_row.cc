#include <algorithm>
#include <array>
#include <cmath>
#include <regex>

#include "launcher/published/known_networks.h"
#include "launcher/published/published_rows.h"
#include "launcher/published/row_names.h"
#include "runtime/base/text.h"
#include "runtime/config/hardware.h"

namespace lockstep::published {
namespace {

// The year of the software; of the source if it does not say.
int year_of(const PublishedRow& row) {
  const std::string& version = row.text("version");
  std::smatch match;
  if (std::regex_search(version, match, std::regex("NGC (\\d\\d)\\.")))
    return 2000 + std::stoi(match[1]);
  const std::regex year("20[12]\\d");
  for (const std::string* text : {&version, &row.text("source_date")})
    if (std::regex_search(*text, match, year)) return std::stoi(match[0]);
  return 2022;
}

// What is known of a framework and its version; the first match counts.
Software software_of(const PublishedRow& row, const Hardware& hardware, Arithmetic arithmetic) {
  using enum Software::Attention;
  const auto framework = [&](std::string_view part) { return row.has("framework", part); };
  const std::string& kind = row.text("kind");
  const bool images = kind == "cnn" || kind == "unet" || kind == "detection";
  Software software;
  // Without tensor cores images have any layout; TF32 was used with that of FP32.
  software.copies_layout = arithmetic == Arithmetic::kTf32 && (kind == "cnn" || kind == "unet");
  if (row.has("version", "MLPerf"))
    return {.fusion = images ? 2.0 : 1.0,
            .attention = kFlash2,
            .native_attention = true,
            .launches = 0,
            .host_work = false,
            .copies_layout = software.copies_layout};
  const bool decoder = kind == "gpt" || kind == "llama";
  if (framework("llm.c")) {
    // Without Python; sums and norms are fused, and so are products and GELU, logits and loss.
    return {.fusion = 2,
            .attention = kFlash2,
            .native_attention = true,
            .launches = 0,
            .host_work = false};
  }
  if (framework("MXNet")) {
    software.fusion = 1.5;
    software.launches = 0.3;
  } else if (framework("XLA")) {
    software.fusion = 1;
    software.launches = 0.3;
  } else if (framework("TensorFlow") && images && arithmetic == Arithmetic::kHalf &&
             !row.has("model", "VGG")) {
    software.fusion = 1;  // batch norms with the sums and activations that follow
  } else if (framework("Paddle")) {
    software.fusion = 1;
    software.launches = 0.5;
  } else if (framework("apex, LAMB") && row.has("model", "pretraining")) {
    software.fusion = 0.5;
    software.launches = 0;  // CUDA graphs
  } else if (framework("llm-foundry") || framework("Composer")) {
    software.attention = kFlash1;
    software.native_products = false;
    software.copies_layout |= kind == "diffusion";
  } else if (framework("DeepSpeed") && framework("transformer")) {
    software.fusion = 1;
    software.launches = 0.5;
  } else if (hardware.kind == Hardware::Kind::kCpu) {
    software.fusion = 1;
  } else if (framework("FA3")) {
    software.fusion = 1;
    software.attention = kFlash2;
    software.native_attention = true;
  } else if (framework("DeepLearningExamples fork")) {
    software.copies_layout |= row.has("model", "ResNet");
  } else if (framework("Lightning")) {
    software.copies_layout = true;
  } else if (decoder && year_of(row) >= 2023 && hardware.gpu.capability >= 80) {
    software.attention = kFlash2;
    software.fusion = framework("torchtitan") && !row.has("strategy", "compile") ? 0 : 1;
    software.launches = framework("compile") || row.has("strategy", "compile") ? 0 : 1;
  }
  return software;
}

// GB/s of a node's network by the row's text: its cards times the rate of each. 0: not stated.
double stated_gbytes(const PublishedRow& row) {
  static const std::regex kCards("(\\d+) ?x[ \\d]"), kRate("(\\d+) ?G(b|B|igabit)"),
      kInfiniBand("(FDR|EDR|HDR|NDR)[- ]?(\\d+)?");
  const std::string text = row.text("inter_link") + "," + row.text("intra_link");
  double most = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const auto has = [&](const char* word) { return part.find(word) != std::string::npos; };
    if (has("NVLink domain")) return 1e6;
    if (has("NVL") && !has("thernet") && !has("IB")) continue;
    std::smatch match;
    double gbits = 0;
    if (std::regex_search(part, match, kRate)) {
      gbits = std::stod(match[1]);
    } else if (std::regex_search(part, match, kInfiniBand)) {
      const std::string name = match[1];
      gbits = match[2].matched ? std::stod(match[2])
              : name == "FDR"  ? 56
              : name == "EDR"  ? 100
              : name == "HDR"  ? 200
                               : 400;
    }
    double cards = has("per GPU") ? 8 : 1;
    if (std::regex_search(part, match, kCards)) cards *= std::stod(match[1]);
    most = std::max(most, gbits / 8 * cards);
  }
  return most;
}

Link rate_of(double latency_us, double gbytes_per_s) {
  Link link;
  link.latency_us = latency_us;
  link.gbytes_per_s = gbytes_per_s;
  return link;
}

void set_links(const PublishedRow& row, TrainerCase& trainer) {
  constexpr double kOfWire = 0.92, kLatencyUs = 20;  // as links.textproto has them
  const Hardware& hardware = trainer.hardware;
  trainer.link = rate_of(5, 10);
  if (!hardware.link.empty()) trainer.link = config::find_link(hardware, hardware.link);
  if (row.has("intra_link", "BRIDGE") || row.has("intra_link", "NVBridge"))
    trainer.link = rate_of(4, 60);
  trainer.network_link = config::find_link(hardware, hardware.network);
  if (const double stated = stated_gbytes(row); stated > 0)
    trainer.network_link = rate_of(kLatencyUs, stated * kOfWire);
}

// Bytes of the optimizer's state, gradients and weights that an update moves for each parameter.
double update_bytes(const std::string& kind) {
  if (kind == "bert") return 60;                        // LAMB: two passes
  if (kind == "cnn" || kind == "detection") return 24;  // SGD with momentum
  if (kind == "transformer-xl") return 170;             // LAMB and clipping, op by op
  return 34;                                            // Adam
}

// The bytes of an element of the gradients when they are exchanged. Autocast leaves weights and
// gradients in FP32; parameters in 16 bits have gradients in 16 bits.
double gradient_bytes(const PublishedRow& row, Arithmetic arithmetic, Sharding sharding) {
  if (arithmetic != Arithmetic::kHalf) return 4;
  const bool shards = sharding != Sharding::kNone && sharding != Sharding::kUpdate;
  if (shards) return row.text("precision") == "amp_bf16" ? 4 : 2;
  if (row.has("version", "MLPerf")) return 2;
  for (const std::string_view name :
       {"apex", "Paddle", "MXNet", "MxNet", "TensorFlow", "DeepSpeed", "NNL", "llm.c"})
    if (row.has("framework", name)) return 2;
  return row.text("kind") == "bert" && row.has("framework", "fork") ? 2 : 4;
}

Sharding sharding_of(const PublishedRow& row) {
  if (row.has("strategy", "HSDP")) return Sharding::kNode;
  const bool fsdp = row.has("strategy", "FSDP") || row.has("strategy", "ZeRO-3");
  if (fsdp) return row.has("strategy", "GRAD_OP") ? Sharding::kGradients : Sharding::kAll;
  return row.has("strategy", "ZeRO") ? Sharding::kUpdate : Sharding::kNone;
}

// The case of a row, and the settings where a row has several: batch and sequence.
std::optional<TrainerCase> case_of(const PublishedRow& row,
                                   const TrainerConstants& constants,
                                   double batch,
                                   double tokens,
                                   std::string* why) {
  const std::optional<Hardware> hardware = hardware_of(row, why);
  if (!hardware) return std::nullopt;
  TrainerCase trainer;
  trainer.constants = constants;
  trainer.hardware = *hardware;
  trainer.arithmetic = arithmetic_of(row);
  const double fill = fill_of(row, constants);
  const std::optional<NetworkWork> network =
      network_of(row,
                 {.batch = batch,
                  .tokens = tokens,
                  .fill = fill,
                  .half = trainer.arithmetic == Arithmetic::kHalf,
                  .memory_gib = hardware->memory_gib},
                 why);
  if (!network) return std::nullopt;
  trainer.network = *network;
  trainer.software = software_of(row, *hardware, trainer.arithmetic);
  trainer.sharding = sharding_of(row);
  trainer.devices = row.devices();
  trainer.nodes = row.nodes();
  set_links(row, trainer);
  const std::string& global = row.text("global_batch");
  double all = 0;
  if (const auto count = parse_as<double>(global)) all = *count;
  trainer.micro_batches = row.number("grad_accum");
  if (trainer.micro_batches == 0)
    trainer.micro_batches =
        std::max(1.0, std::nearbyint(all / (trainer.network.samples * trainer.devices)));
  trainer.adapters = row.has("model", "LoRA");
  trainer.recomputed = row.text("recompute").starts_with("full") || trainer.adapters ? 1
                       : row.text("recompute").starts_with("selective")              ? 0.5
                                                                                     : 0;
  trainer.gradient_bytes = gradient_bytes(row, trainer.arithmetic, trainer.sharding);
  trainer.update_bytes = update_bytes(row.text("kind"));
  trainer.spread = row.text("kind") == "translation" ? constants.bucket_spread : constants.spread;
  if (fill < 1)
    trainer.spread +=
        constants.length_spread / std::sqrt(trainer.network.samples * trainer.micro_batches);
  return trainer;
}

double samples_per_s(const TrainerCase& trainer, const TrainerStep& step) {
  return trainer.network.samples * trainer.micro_batches * trainer.devices / step.seconds;
}

// Minutes of the two phases of BERT: 403 million sequences of 128 tokens and 20 million of 512.
std::optional<Prediction> pretraining_minutes(const PublishedRow& row,
                                              const TrainerConstants& constants,
                                              std::string* why) {
  struct Phase {
    double tokens, batch, samples, global;
  };
  constexpr Phase kPhases[] = {{128, 64, 403e6, 65536}, {512, 8, 20e6, 32768}};
  Prediction prediction;
  for (const Phase& phase : kPhases) {
    std::optional<TrainerCase> trainer = case_of(row, constants, phase.batch, phase.tokens, why);
    if (!trainer) return std::nullopt;
    trainer->micro_batches =
        std::max(1.0, std::floor(phase.global / (phase.batch * trainer->devices)));
    prediction.step = step_of(*trainer);
    prediction.value += phase.samples / samples_per_s(*trainer, prediction.step) / 60;
  }
  return prediction;
}

}  // namespace

std::optional<Prediction> predict(const PublishedRow& row,
                                  const TrainerConstants& constants,
                                  std::string* why) {
  const std::string unit = unit_of(row);
  if (unit == "min" && row.has("model", "pretraining to F1"))
    return pretraining_minutes(row, constants, why);
  std::optional<TrainerCase> trainer =
      case_of(row, constants, row.number("batch_per_device"), row.number("seq_or_image"), why);
  if (!trainer) return std::nullopt;
  Prediction prediction;
  prediction.step = step_of(*trainer);
  const double rate = samples_per_s(*trainer, prediction.step) *
                      (row.text("kind") == "translation" ? constants.bucket_fill : 1);
  const double tokens = trainer->network.tokens_of_sample, devices = trainer->devices;
  if (unit == "tokens/s") {
    prediction.value = rate * tokens;
  } else if (unit == "tokens/s/device") {
    prediction.value = rate * tokens / devices;
  } else if (unit == "tflop/s/device") {
    // As their authors count: three times forward, of attention the half that is not masked.
    double flops = 2 * trainer->network.multiply_adds();
    for (const Attention& each : trainer->network.attentions)
      flops += 2 * each.heads * each.queries * each.keys * each.size;
    prediction.value = 3 * flops / trainer->network.samples * rate / devices / 1e12;
  } else if (unit == "fraction") {
    // A share of linear scaling from one device.
    TrainerCase one = *trainer;
    one.devices = one.nodes = 1;
    prediction.value = step_of(one).seconds / prediction.step.seconds;
  } else if (unit == "ms/iteration") {
    prediction.value = prediction.step.seconds * 1e3;
  } else if (unit == "s/iteration" || unit == "s/step") {
    prediction.value = prediction.step.seconds;
  } else if (unit.starts_with("it") || unit.starts_with("step")) {
    prediction.value = 1 / prediction.step.seconds;
  } else if (unit == "min" && row.has("model", "90 epochs")) {
    constexpr double kImages = 90 * 1281167.0;
    prediction.value = kImages / rate / 60;
  } else if (unit.ends_with("/s")) {
    prediction.value = rate;
  } else {
    *why = "unit " + in_quotes(row.text("unit")) + " is unknown";
    return std::nullopt;
  }
  return prediction;
}

}  // namespace lockstep::published
