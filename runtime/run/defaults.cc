#include "runtime/run/defaults.h"

#include <fmt/core.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/plan/layout.h"
#include "runtime/run/zero_stage.h"

namespace lockstep::run {
namespace {

// The size of buckets, if the config leaves it open, is chosen by the cost model. It is a fixed
// size in ZeRO stages 2 and 3, where the memory for gradients has buckets, and on GPUs, whose
// interconnects the cost model does not know.
double bucket_mib_of(const CommConfig& comm,
                     int zero_stage,
                     const exec::OpSet& ops,
                     const graph::Graph& training) {
  constexpr double kMiB = 1024.0 * 1024;
  if (comm.bucket_mib > 0) return comm.bucket_mib;
  if (ops.separate_memory || zero_stage >= 2)
    return static_cast<double>(collectives::kUsualBucketElements) * sizeof(float) / kMiB;
  return plan::usual_bucket_mib(training, wire_type(comm.wire_dtype));
}

// Whether checkpoints are written before the last step; training waits for the last checkpoint in
// any case.
bool saves_meanwhile(const RunConfig& config) {
  const CheckpointConfig& checkpoint = config.checkpoint;
  const bool best = checkpoint.keep_best && checkpoint.at_end && config.eval.every > 0;
  return checkpoint.every > 0 || checkpoint.every_minutes > 0 || checkpoint.local.every > 0 || best;
}

}  // namespace

DType compute_type(Precision precision) {
  switch (precision) {
    case Precision::kBf16: return DType::kBF16;
    case Precision::kFp16: return DType::kF16;
    case Precision::kFp32: return DType::kF32;
    case Precision::kAuto: break;
  }
  LOCKSTEP_CHECK(precision != Precision::kAuto, "resolve_precision() comes first");
  return DType::kF32;
}

DType wire_type(CommConfig::WireType type) {
  switch (type) {
    case CommConfig::WireType::kBf16: return DType::kBF16;
    case CommConfig::WireType::kFp16: return DType::kF16;
    case CommConfig::WireType::kFp32: break;
  }
  return DType::kF32;
}

int64_t loss_rows_of(const ExecutionConfig& execution, int64_t vocabulary, const exec::OpSet& ops) {
  constexpr int64_t kMaxBytes = int64_t{256} << 20, kUnit = 64;  // whole blocks of products
  if (execution.loss_rows > 0 || ops.separate_memory || execution.bf16x3)
    return execution.loss_rows;
  const int64_t row_bytes =
      std::max<int64_t>(vocabulary, 1) * static_cast<int64_t>(size_of(DType::kF32));
  return std::max<int64_t>(kUnit, kMaxBytes / row_bytes / kUnit * kUnit);
}

bool wants_shared_memory(const CommConfig& comm,
                         int zero_stage,
                         const collectives::Topology& placed,
                         const exec::OpSet& ops) {
  if (!comm.shared_memory || ops.separate_memory || placed.per_node == 1) return false;
  if (comm.order == CommConfig::Order::kFast) return false;  // the library makes the sums
  // In ZeRO stage 0 the ranks of a node share their sums, but not what comes from other nodes.
  if (zero_stage == 0) return placed.nodes == 1 && comm.power_sgd_rank == 0;
  return zero_stage < 3;
}

RunDefaults choose_defaults(const RunConfig& config,
                            const collectives::Topology& placed,
                            RunPurpose purpose,
                            const exec::OpSet& ops,
                            const graph::Graph& training,
                            double link_gbit) {
  const CommConfig& comm = config.comm;
  const bool trains = purpose == RunPurpose::kTrain;
  RunDefaults defaults;
  ZeroStageChoice choice;
  if (trains && placed.ranks() > 1) choice = choose_zero_stage(config, placed, ops, link_gbit);
  defaults.zero_stage_reason = choice.reason;
  // With FAST the library chooses the order of sums, and finds the nodes itself.
  plan::ShardingPlan& sharding = defaults.sharding;
  sharding.topology =
      comm.order == CommConfig::Order::kFast ? collectives::Topology::flat(placed.ranks()) : placed;
  sharding.topology.shares_memory =
      trains && placed.shares_memory && wants_shared_memory(comm, choice.stage, placed, ops);
  sharding.zero_stage = choice.stage;
  sharding.lanes = static_cast<int>(config.train.lanes);
  sharding.library_order = comm.order == CommConfig::Order::kFast;
  defaults.bucket_mib = bucket_mib_of(comm, choice.stage, ops, training);
  defaults.snapshot = trains && config.checkpoint.async && saves_meanwhile(config);
  return defaults;
}

std::string to_text(const RunDefaults& defaults) {
  const collectives::Topology& topology = defaults.sharding.topology;
  const std::string saving =
      defaults.snapshot ? ", checkpoints written while training goes on" : "";
  if (topology.ranks() == 1)
    return fmt::format("buckets of {:g} MiB", defaults.bucket_mib) + saving;
  const std::string& reason = defaults.zero_stage_reason;
  return fmt::format("ZeRO stage {}{}, buckets of {:g} MiB, the ranks {}{}",
                     defaults.sharding.zero_stage,
                     reason.empty() ? "" : " (" + reason + ")",
                     defaults.bucket_mib,
                     topology.shares_memory ? "of a node share memory" : "send messages",
                     saving);
}

}  // namespace lockstep::run
