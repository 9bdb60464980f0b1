#include "runtime/run/fit.h"

#include <functional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::run {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// One kind of memory: what a plan needs of it, and what is available.
struct Need {
  std::function<size_t(const plan::Plan& plan)> bytes;
  int ranks;  // that share the memory
  size_t available;
  std::string where;
};

// A setting that needs less memory: the fields as --set has them.
struct Setting {
  std::string set;
  RunConfig config;
  bool same_bits = true;
};

// Settings with the same batch, those that cost least first: ZeRO stages, recomputation, logits in
// parts, both with the highest stage, and then the same with more and more lanes.
std::vector<Setting> smaller_settings(const PreparedRun& prepared) {
  const RunConfig& now = prepared.config;
  const bool several = prepared.plan.sharding.topology.ranks() > 1;
  std::vector<Setting> settings;
  const auto add = [&](Setting from, int64_t stage, bool recompute, bool rows) {
    if (stage > prepared.plan.sharding.zero_stage && several) {
      from.config.comm.zero_stage = static_cast<ZeroStage>(stage);
      append_item(from.set, fmt::format("--set comm.zero_stage=STAGE_{}", stage), " ");
    }
    if (recompute && prepared.model->traits().has_blocks &&
        now.execution.recompute == ExecutionConfig::Recompute::kNothing) {
      from.config.execution.recompute = ExecutionConfig::Recompute::kBlocks;
      append_item(from.set, "--set execution.recompute=BLOCKS", " ");
    }
    if (rows && prepared.model->traits().context > 0 && now.execution.loss_rows == 0) {
      constexpr int64_t kRows = 1024;
      from.config.execution.loss_rows = kRows;
      append_item(from.set, fmt::format("--set execution.loss_rows={}", kRows), " ");
      from.same_bits = from.same_bits && !prepared.ops->separate_memory;
    }
    if (!from.set.empty()) settings.push_back(std::move(from));
  };
  const auto add_all = [&](const Setting& from) {
    if (!from.set.empty()) settings.push_back(from);
    for (const int64_t stage : {2, 3}) add(from, stage, false, false);
    add(from, 0, true, false);
    add(from, 0, true, true);
    add(from, 3, true, false);
    add(from, 3, true, true);
  };
  add_all({"", now});
  // A lane of a network that normalises over it would become another one.
  if (prepared.model->traits().normalises_lanes) return settings;
  constexpr int64_t kMostLanes = 64;  // times as many as now
  for (int64_t times = 2; times <= kMostLanes; times *= 2) {
    Setting more = {"", now, false};
    more.config.train.lanes = now.train.lanes * times;
    if (now.train.global_batch % more.config.train.lanes != 0) break;
    more.set = fmt::format("--set train.lanes={}", more.config.train.lanes);
    add_all(more);
  }
  return settings;
}

// The first of them that fits: "with --set train.lanes=16 it would fit (other bits)"; empty if none
// does.
std::string setting_that_fits(const PreparedRun& prepared, const Need& need) {
  if (prepared.purpose != RunPurpose::kTrain) return "";
  for (const Setting& setting : smaller_settings(prepared)) {
    try {
      if (need.bytes(with_settings(prepared, setting.config).plan) > need.available) continue;
    } catch (const ConfigError&) {
      continue;  // it does not go with the rest of the config
    }
    return fmt::format(
        "with {} it would fit{}; ", setting.set, setting.same_bits ? "" : " (other bits)");
  }
  return "";
}

void require(const PreparedRun& prepared, const Need& need) {
  if (need.bytes(prepared.plan) <= need.available) return;
  const int64_t lanes = prepared.config.train.lanes;
  const auto needed_with = [&](int64_t batch) {
    return need.bytes(plan_for_batch(prepared, batch));
  };
  // The largest multiple of the lanes that fits, by bisection: the need grows with the batch.
  int64_t fits = 0, fails = prepared.config.train.global_batch / lanes;
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (needed_with(middle * lanes) <= need.available ? fits : fails) = middle;
  }
  const std::string advice = fits > 0 ? fmt::format("train.global_batch {} would fit", fits * lanes)
                                      : fmt::format("even train.global_batch {} needs {:.2f} GiB",
                                                    lanes,
                                                    static_cast<double>(needed_with(lanes)) / kGiB);
  throw MemoryError(
      "the run needs {:.2f} GiB {} ({} rank{}), {:.2f} GiB are free; {}{}; `lockstep plan` "
      "lists the parts",
      static_cast<double>(need.bytes(prepared.plan)) / kGiB,
      need.where,
      need.ranks,
      plural(need.ranks),
      static_cast<double>(need.available) / kGiB,
      setting_that_fits(prepared, need),
      advice);
}

}  // namespace

bool lacks_memory_for_snapshot(const PreparedRun& prepared,
                               int local_ranks,
                               const MemoryLimits& limits) {
  return prepared.plan.memory.has_snapshot() &&
         prepared.plan.memory.host_bytes(local_ranks) > limits.host_bytes;
}

void require_memory(const PreparedRun& prepared, int local_ranks, const MemoryLimits& limits) {
  require(prepared,
          {[](const plan::Plan& plan) { return plan.memory.device_bytes(); },
           1,
           limits.device_bytes,
           "on " + limits.device});
  require(prepared,
          {[=](const plan::Plan& plan) { return plan.memory.host_bytes(local_ranks); },
           local_ranks,
           limits.host_bytes,
           "on " + limits.host});
}

}  // namespace lockstep::run
