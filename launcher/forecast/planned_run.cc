#include "launcher/forecast/planned_run.h"

#include <algorithm>
#include <charconv>

#include "launcher/ranks/devices.h"
#include "runtime/base/error.h"
#include "runtime/run/lanes.h"
#include "runtime/run/precision.h"

namespace lockstep::launcher {
namespace {

// The link between nodes: by its name, or over TCP with so many Gbit/s.
const Link* network_of(const std::string& name, const Hardware& hardware, Link& made) {
  if (name.empty()) return nullptr;
  double gbit = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), gbit);
  if (code != std::errc() || end != name.data() + name.size() || !(gbit > 0))
    return &config::find_link(hardware, name);
  constexpr double kLatency_us = 50;
  constexpr double kData = 0.95;  // the share of the wire's rate that is left for data
  made.name = name + " Gbit/s";
  made.latency_us = kLatency_us;
  made.gbytes_per_s = gbit / 8 * kData;
  made.from = "--network";
  return &made;
}

// What a node's network sends, as a run on CPU nodes measures it before it decides.
double measured_gbit(const PlanRequest& request, const PlanPlace& place) {
  const bool gpu = place.hardware.hardware.kind == Hardware::Kind::kGpu;
  const bool several = place.ranks_per_node < request.ranks;
  return several && !gpu && place.network != nullptr ? 8 * place.network->gbytes_per_s : 0;
}

// The threads of a rank there.
int threads_there(const RunConfig& config, const PlanPlace& place) {
  if (config.execution.threads > 0) return static_cast<int>(config.execution.threads);
  return std::max(1, static_cast<int>(place.hardware.hardware.cpu.cores) / place.ranks_per_node);
}

forecast::Forecast forecast_of(const PlanRequest& request,
                               const PlanPlace& place,
                               const run::PreparedRun& prepared) {
  forecast::Forecast forecast;
  forecast.place.hardware = &place.hardware.hardware;
  forecast.place.link = place.link;
  forecast.place.network = place.network;
  forecast.place.ranks_per_node = place.ranks_per_node;
  forecast.place.threads = threads_there(prepared.config, place);
  if (request.terms.spread > 0)
    forecast.place.spread = forecast::Range::exactly(request.terms.spread);
  forecast.step = forecast::forecast_step(prepared, forecast.place);
  forecast.run = forecast::forecast_run(prepared, forecast.place, forecast.step, request.terms);
  return forecast;
}

}  // namespace

void find_place(const PlanRequest& request, PlanPlace& place) {
  place.device = request.common.device;
  place.ranks_per_node = request.ranks_per_node > 0 ? request.ranks_per_node : request.ranks;
  if (place.ranks_per_node > request.ranks)
    throw ConfigError("--ranks-per-node: value is {}; allowed: 1 to --ranks ({})",
                      request.ranks_per_node,
                      request.ranks);
  if (request.on.empty()) return;
  place.hardware = planned_hardware(request.on_flag, request.on);
  const Hardware& hardware = place.hardware.hardware;
  const bool gpu = hardware.kind == Hardware::Kind::kGpu;
  if (gpu && place.device == "cpu")
    throw ConfigError("{} {}: the run is planned for the CPU; leave out {}, or {}",
                      request.on_flag,
                      request.on,
                      request.on_flag,
                      device_of_environment() == "cpu" ? "unset LOCKSTEP_DEVICE" : "--device cpu");
  if (!gpu && place.device == "cuda")
    throw ConfigError("{} {}: has no GPU; leave out --device cuda", request.on_flag, request.on);
  place.device = gpu ? "cuda" : "cpu";
  if (gpu && place.predicts() && request.ranks_per_node == 0)
    place.ranks_per_node = std::min(request.ranks, static_cast<int>(hardware.devices));
  place.network = network_of(
      request.network.empty() ? hardware.network : request.network, hardware, place.made);
  if (!hardware.link.empty()) place.link = &config::find_link(hardware, hardware.link);
}

// They share memory if all nodes are alike.
collectives::Topology placed_ranks(const PlanRequest& request, const PlanPlace& place) {
  const int per_node = place.ranks_per_node;
  std::vector<std::string> nodes;
  for (int rank = 0; rank < request.ranks; ++rank) nodes.push_back(std::to_string(rank / per_node));
  collectives::Topology topology = collectives::topology_of(nodes);
  topology.shares_memory = topology.per_node > 1 && topology.per_node == per_node;
  return topology;
}

PlannedRun plan_run(const PlanRequest& request,
                    const PlanPlace& place,
                    const std::vector<std::string>& set) {
  CommonOptions common = request.common;
  common.set.insert(common.set.end(), set.begin(), set.end());
  return plan_opened(read_config(common), request, place);
}

PlannedRun plan_opened(const run::OpenedConfig& opened,
                       const PlanRequest& request,
                       const PlanPlace& place) {
  CommonOptions common = request.common;
  common.device = place.device;
  const exec::OpSet& ops = ops_to_plan_for(common);
  const run::ChosenLanes lanes = run::choose_lanes(opened);
  const run::ChosenPrecision precision =
      run::choose_precision(lanes.opened, run::RunPurpose::kTrain, ops);
  PlannedRun planned = plan_prepared(run::prepare_run(precision.opened,
                                                      placed_ranks(request, place),
                                                      run::RunPurpose::kTrain,
                                                      ops,
                                                      {.may_assume_data = true,
                                                       .bucket_mib = request.bucket_mib,
                                                       .link_gbit = measured_gbit(request, place),
                                                       .eager = common.eager}),
                                     request,
                                     place);
  planned.choices =
      "precision " + precision.text() + (lanes.text.empty() ? "" : ", lanes " + lanes.text);
  return planned;
}

PlannedRun plan_prepared(const run::PreparedRun& prepared,
                         const PlanRequest& request,
                         const PlanPlace& place) {
  PlannedRun planned{.prepared = prepared};
  const plan::MemoryPlan& memory = planned.prepared.plan.memory;
  if (place.hardware.device_bytes > 0) {
    planned.available_bytes = static_cast<double>(place.hardware.device_bytes);
    planned.needed_bytes = static_cast<double>(memory.device_bytes());
    if (!planned.fits() && prepared.plan.sharding.lanes_at_once > 2) {
      planned.prepared = run::with_pairs(prepared);
      planned.needed_bytes = static_cast<double>(memory.device_bytes());
    }
  } else if (place.predicts()) {
    planned.needed_bytes = static_cast<double>(memory.host_bytes(place.ranks_per_node));
    planned.available_bytes = place.hardware.hardware.memory_gib * 0x1p30;
    // A run that does not fit goes without a snapshot.
    if (!planned.fits() && memory.has_snapshot())
      planned.needed_bytes = static_cast<double>(
          run::without_snapshot(prepared).plan.memory.host_bytes(place.ranks_per_node));
  }
  if (!place.predicts()) return planned;
  planned.forecast = forecast_of(request, place, planned.prepared);
  planned.forecast->fit = fmt::format("{} ({:.3g} of {:.3g} GiB, ZeRO {})",
                                      planned.fits() ? "fits" : "does NOT fit",
                                      planned.needed_bytes / 0x1p30,
                                      planned.available_bytes / 0x1p30,
                                      planned.prepared.plan.sharding.zero_stage);
  return planned;
}

}  // namespace lockstep::launcher
