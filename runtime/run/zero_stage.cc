#include "runtime/run/zero_stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/run/defaults.h"

namespace lockstep::run {
namespace {

// Of a node, in GB/s: how fast its ranks read and write memory in an update, and what they send
// each other. Conservative figures of servers and of GPUs with NVLink.
struct NodeRates {
  double memory, messages;
};
constexpr NodeRates kHost = {16, 3}, kGpus = {1500, 100};

// An update with two moments reads and writes so many bytes a parameter.
constexpr double kUpdateBytes = 28;

}  // namespace

double stage_0_below_gbit(const RunConfig& config,
                          const collectives::Topology& placed,
                          const exec::OpSet& ops) {
  if (placed.nodes == 1) return 0;
  const auto wire = static_cast<double>(size_of(wire_type(config.comm.wire_dtype))),
             compute = static_cast<double>(size_of(compute_type(config.execution.precision)));
  const double per_node = placed.per_node, nodes = placed.nodes;
  const double saved_bytes = (compute - wire) * (nodes - 1) / nodes;
  if (saved_bytes <= 0) return 0;
  const NodeRates rates = ops.separate_memory ? kGpus : kHost;
  const double update_bytes = kUpdateBytes * per_node * (1 - 1.0 / placed.ranks());
  const double message_bytes = 2 * wire * (per_node - 1);
  constexpr double kBits = 8;
  return kBits * saved_bytes / (update_bytes / rates.memory + message_bytes / rates.messages);
}

ZeroStageChoice choose_zero_stage(const RunConfig& config,
                                  const collectives::Topology& placed,
                                  const exec::OpSet& ops,
                                  double link_gbit) {
  const CommConfig& comm = config.comm;
  if (comm.zero_stage != ZeroStage::kAuto) return {static_cast<int>(comm.zero_stage), ""};
  if (comm.power_sgd_rank > 0) return {0, "AUTO with comm.power_sgd_rank"};
  const double below = stage_0_below_gbit(config, placed, ops);
  if (below == 0) return {1, "AUTO"};
  const double rate = comm.link_gbit > 0 ? comm.link_gbit : link_gbit;
  if (rate == 0)
    return {1,
            fmt::format("AUTO; stage 0 if comm.link_gbit, what a node's network sends, is below "
                        "{:.2g} Gbit/s",
                        below)};
  const bool slow = rate < below;
  return {slow ? 0 : 1,
          fmt::format("AUTO: the network sends {:.3g} Gbit/s, {} than {:.2g}",
                      rate,
                      slow ? "less" : "not less",
                      below)};
}

}  // namespace lockstep::run
