#include "runtime/run/settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <set>

#include "runtime/base/text.h"
#include "runtime/config/limits.h"
#include "runtime/config/parse.h"

namespace lockstep::run {
namespace {

Setting one(std::string set, bool same_bits, std::string gives_up = "") {
  Setting setting;
  setting.set.push_back(std::move(set));
  setting.same_bits = same_bits;
  setting.gives_up = std::move(gives_up);
  return setting;
}

constexpr int64_t kMostTimes = 64;  // as many lanes as now, or as ranks

void add_lanes(const PreparedRun& prepared, SettingChoices& choices) {
  if (prepared.model->traits().normalises_lanes) return;
  const TrainConfig& train = prepared.config.train;
  const int64_t ranks = prepared.placed.ranks();
  const int64_t limit = std::min(train.global_batch, config::integer_limit_of("train.lanes").high);
  std::set<int64_t> numbers;
  for (const int64_t from : {ranks, train.lanes})
    for (int64_t times = 1; times <= kMostTimes && from * times <= limit; times *= 2)
      if (train.global_batch % (from * times) == 0) numbers.insert(from * times);
  for (const int64_t lanes : numbers) {
    if (lanes == train.lanes || lanes < ranks) continue;
    (lanes < train.lanes ? choices.fewer_lanes : choices.more_lanes)
        .push_back(one(fmt::format("train.lanes={}", lanes), false));
  }
}

void add_zero_stages(const PreparedRun& prepared, SettingChoices& choices) {
  if (prepared.placed.ranks() == 1) return;
  constexpr std::array<const char*, 4> kGivesUp = {
      "", "", "gradients are sent for every lane", "parameters are gathered for every lane"};
  for (size_t stage = 0; stage < kGivesUp.size(); ++stage)
    if (static_cast<int>(stage) != prepared.plan.sharding.zero_stage)
      choices.zero_stages.push_back(
          one(fmt::format("comm.zero_stage=STAGE_{}", stage), true, kGivesUp[stage]));
}

void add_precisions(const PreparedRun& prepared, SettingChoices& choices) {
  const ExecutionConfig& execution = prepared.config.execution;
  const bool gpu = prepared.ops->separate_memory;
  std::vector<Setting>& precisions = choices.precisions;
  if (execution.precision != Precision::kFp32) {
    if (!gpu) precisions.push_back(one("execution.precision=FP32", false));
    return;
  }
  if (!execution.tf32 && !execution.bf16x3) {
    if (gpu)
      precisions.push_back(one("execution.tf32=true", false, "products with 10 bits of precision"));
    else
      precisions.push_back(one("execution.bf16x3=true", false));
    precisions.push_back(one("execution.precision=BF16", false, "8 bits of precision"));
  }
}

}  // namespace

SettingChoices setting_choices(const PreparedRun& prepared) {
  const RunConfig& config = prepared.config;
  const ExecutionConfig& execution = config.execution;
  const plan::Plan& plan = prepared.plan;
  SettingChoices choices;
  add_lanes(prepared, choices);
  add_zero_stages(prepared, choices);
  if (prepared.model->traits().has_blocks &&
      execution.recompute == ExecutionConfig::Recompute::kNothing)
    choices.recomputations.push_back(one("execution.recompute=BLOCKS", true, "a third more work"));
  if (prepared.model->traits().context > 0 && execution.loss_rows == 0) {
    // On GPUs another split gives other bits, and so it does with bf16x3.
    const bool same_bits = !prepared.ops->separate_memory && !execution.bf16x3;
    choices.loss_rows.push_back(one("execution.loss_rows=1024", same_bits, "the logits in parts"));
  }
  add_precisions(prepared, choices);
  // Adafactor's are FP32.
  const bool has_moments =
      plan.memory.row_bytes(plan::RowKind::kMoments) > 0 && !plan.traffic.adafactor;
  using MomentType = OptimizerConfig::MomentType;
  const MomentType moments = config.optimizer.moments;
  if (has_moments && moments == MomentType::kFp32)
    choices.moments.push_back(
        one("optimizer.moments=BF16", false, "moments with 8 bits of precision"));
  if (has_moments && moments != MomentType::kInt8)
    choices.moments.push_back(one("optimizer.moments=INT8", false, "moments of one byte"));
  if (plan.traffic.wire_bytes > 0 && config.comm.wire_dtype == CommConfig::WireType::kFp32)
    choices.wire_types.push_back(one("comm.wire_dtype=BF16", false, "sums of lanes with 8 bits"));
  if (plan.traffic.wire_bytes > 0 && !config.comm.tune_buckets)
    for (const double size : kBucketMib)
      if (size != prepared.defaults.bucket_mib)
        choices.buckets.push_back(one(fmt::format("comm.bucket_mib={:g}", size), true));
  return choices;
}

Setting combined(const Setting& first, const Setting& second) {
  Setting both = first;
  both.set.insert(both.set.end(), second.set.begin(), second.set.end());
  both.same_bits = first.same_bits && second.same_bits;
  if (!second.gives_up.empty()) append_item(both.gives_up, second.gives_up);
  return both;
}

std::string set_options(const Setting& setting) {
  std::string options;
  for (const std::string& set : setting.set) append_item(options, "--set " + set, " ");
  return options;
}

PreparedRun with_setting(const PreparedRun& prepared, const Setting& setting) {
  return with_config(
      prepared, config::parse_config(config::to_text(prepared.config), "the config", setting.set));
}

}  // namespace lockstep::run
