#include "launcher/published/tuned_forecast.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "launcher/forecast/forecast_text.h"
#include "launcher/published/planned_work.h"
#include "runtime/config/hardware.h"
#include "runtime/run/lanes.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::published {
namespace {

using forecast::Range;

// "predicted from published figures, another program; see launcher/published".
std::string basis_of(const TunedForecast& tuned) {
  const bool cpu = tuned.trainer.hardware.kind == Hardware::Kind::kCpu;
  return fmt::format("predicted from {}, another program; see launcher/published",
                     cpu ? "four published figures of CPUs" : "published figures");
}

Arithmetic arithmetic_of(const run::PreparedRun& prepared) {
  if (prepared.plan.layout.compute != DType::kF32) return Arithmetic::kHalf;
  return prepared.config.execution.tf32 ? Arithmetic::kTf32 : Arithmetic::kFp32;
}

// A compiled network whose kernels suit the GPU. Attention is fused where there are fused kernels.
Software software_for(const Hardware& hardware, Arithmetic arithmetic) {
  constexpr int64_t kFlash = 80;  // compute capability
  const bool flash = arithmetic == Arithmetic::kHalf && hardware.gpu.capability >= kFlash;
  return {.fusion = 1,
          .attention = flash ? Software::Attention::kFlash2 : Software::Attention::kProducts,
          .native_attention = true,
          .native_products = true,
          .launches = 0,
          .host_work = true,
          .copies_layout = false};
}

std::string arithmetic_text(const TrainerCase& trainer) {
  if (trainer.arithmetic == Arithmetic::kTf32) return "TF32";
  if (trainer.arithmetic == Arithmetic::kFp32) return "FP32";
  return trainer.hardware.bf16_tflops > 0 ? "BF16" : "FP16, because there is no BF16";
}

std::string attention_text(const TrainerCase& trainer) {
  if (trainer.network.attentions.empty()) return "";
  const bool flash = trainer.software.attention == Software::Attention::kFlash2;
  return flash ? "fused attention, " : "attention by products and softmax, ";
}

Sharding sharding_of(int zero_stage) {
  switch (zero_stage) {
    case 0: return Sharding::kNone;
    case 1: return Sharding::kUpdate;
    case 2: return Sharding::kGradients;
    default: return Sharding::kAll;
  }
}

// Bytes that an update moves for each parameter, as predict_row.cc has them. 0: unknown.
double update_bytes(const OptimizerConfig& optimizer) {
  if (std::holds_alternative<MuonConfig>(optimizer.kind) ||
      std::holds_alternative<AdafactorConfig>(optimizer.kind))
    return 0;
  if (std::holds_alternative<LambConfig>(optimizer.kind)) return 60;
  constexpr double kMoment = 8;  // read and written
  switch (const size_t moments = train::moment_names(optimizer).size()) {
    case 0:
    case 1: return 24;
    case 2: return 34;
    default: return 34 + kMoment * static_cast<double>(moments - 2);
  }
}

// Why the model of tuned trainers has no figures for the run; empty if it has.
std::string unknown_because(const run::PreparedRun& prepared,
                            const Hardware& hardware,
                            const PlannedWork& work) {
  const Hardware* shipped = config::find_hardware(hardware.name);
  if (shipped == nullptr || *shipped != hardware)
    return "no published figures of hardware from a file";
  if (prepared.graphs->training.bf16x3) return "no published figures of execution.bf16x3";
  if (update_bytes(prepared.config.optimizer) == 0)
    return "no published figures of the optimizer " +
           train::optimizer_name(prepared.config.optimizer);
  if (std::string why = unjudged_because(hardware, arithmetic_of(prepared)); !why.empty())
    return why;
  return work.uncounted;
}

// The exchange, and how the step is spread.
void set_devices(const run::PreparedRun& prepared,
                 const forecast::Place& place,
                 TrainerCase& trainer) {
  const plan::ShardingPlan& sharding = prepared.plan.sharding;
  trainer.nodes = sharding.topology.nodes;
  trainer.devices = sharding.topology.ranks();
  trainer.micro_batches = run::lane_use(prepared.config, sharding.shares()).most;
  if (place.hardware->kind == Hardware::Kind::kCpu) {
    // The figures are those of a node, whose ranks work at the same time.
    trainer.micro_batches = std::ceil(sharding.lanes / trainer.nodes);
    trainer.devices = trainer.nodes;
  }
  trainer.sharding = sharding_of(sharding.zero_stage);
  const bool wide = prepared.config.comm.wire_dtype == CommConfig::WireType::kFp32;
  trainer.gradient_bytes = wide ? 4 : 2;
  trainer.link.latency_us = 5;  // PCIe by way of the host, as for rows without a link
  trainer.link.gbytes_per_s = 10;
  if (place.link != nullptr) trainer.link = *place.link;
  if (place.network != nullptr) trainer.network_link = *place.network;
}

}  // namespace

TunedForecast tuned_forecast(const run::PreparedRun& prepared, const forecast::Place& place) {
  TunedForecast tuned;
  const Hardware& hardware = *place.hardware;
  const PlannedWork work = work_of(prepared);
  tuned.unknown = unknown_because(prepared, hardware, work);
  TrainerCase& trainer = tuned.trainer;
  trainer.network = work.network;
  trainer.adapters = work.adapters;
  trainer.hardware = hardware;
  trainer.arithmetic = arithmetic_of(prepared);
  trainer.software = software_for(hardware, trainer.arithmetic);
  trainer.spread = trainer.constants.spread;
  trainer.recomputed = prepared.graphs->training.recomputed.empty() ? 0 : 1;
  trainer.update_bytes = update_bytes(prepared.config.optimizer);
  set_devices(prepared, place, trainer);
  if (tuned.unknown.empty() && trainer.nodes > 1 && place.network == nullptr)
    tuned.unknown = "the network between the nodes is unknown";
  if (!tuned.unknown.empty()) return tuned;
  tuned.step = step_of(trainer);
  // What the host does in a step was fitted to longer steps.
  constexpr double kShortest = 0.02;
  if (tuned.step.seconds < kShortest) {
    tuned.unknown = "published figures are of steps that take longer than 20 ms";
    return tuned;
  }
  tuned.samples_per_s =
      static_cast<double>(prepared.config.train.global_batch) / tuned.step.seconds;
  return tuned;
}

void print_tuned(const TunedForecast& tuned) {
  if (!tuned.unknown.empty()) return;
  fmt::print("  well-tuned trainer  {} a step ({})\n",
             forecast::seconds_text(Range::exactly(tuned.step.seconds)),
             basis_of(tuned));
}

void explain_tuned(const TunedForecast& tuned) {
  if (!tuned.unknown.empty()) {
    fmt::print("well-tuned trainer: not predicted: {}\n", tuned.unknown);
    return;
  }
  const auto& [unknown, trainer, step, rate] = tuned;
  const auto text = [](double seconds) { return forecast::seconds_text(Range::exactly(seconds)); };
  fmt::print("well-tuned trainer ({}):\n", basis_of(tuned));
  fmt::print("  {:g} micro-batches of {:g} samples: {} forward, {} backward, {} recomputed each\n",
             trainer.micro_batches,
             trainer.network.samples,
             text(step.forward),
             text(step.backward),
             text(step.recompute));
  fmt::print("  exchange {}, hidden or not; update {}\n", text(step.exchange), text(step.update));
  fmt::print("  assumed: {}, ops fused by a compiler, {}{} bytes for each gradient that is sent\n",
             arithmetic_text(trainer),
             attention_text(trainer),
             trainer.gradient_bytes);
}

void add_tuned(const TunedForecast& tuned, Json& json) {
  if (!tuned.unknown.empty()) {
    json["predicted_tuned_unknown"] = tuned.unknown;
    return;
  }
  const auto& [unknown, trainer, step, rate] = tuned;
  json["predicted_tuned_from"] = basis_of(tuned);
  json["predicted_tuned_step_seconds"] = step.seconds;
  json["predicted_tuned_samples_per_s"] = rate;
  if (trainer.network.tokens_of_sample > 1)
    json["predicted_tuned_tokens_per_s"] = rate * trainer.network.tokens_of_sample;
  json["predicted_tuned_forward_seconds"] = step.forward;
  json["predicted_tuned_backward_seconds"] = step.backward;
  json["predicted_tuned_recompute_seconds"] = step.recompute;
  json["predicted_tuned_exchange_seconds"] = step.exchange;
  json["predicted_tuned_update_seconds"] = step.update;
  json["predicted_tuned_multiply_adds_per_sample"] =
      trainer.network.multiply_adds() / trainer.network.samples;
  json["predicted_tuned_parameters"] = trainer.network.parameters;
}

}  // namespace lockstep::published
