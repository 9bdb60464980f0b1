#include "runtime/run/fit.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/run/settings.h"

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

// Settings that need less memory, those that cost least first: ZeRO stages, recomputation, logits
// in parts, the last two with the highest stage, and then the same with more and more lanes, with
// fewer, which need fewer partial sums, and with moments in two bytes and in one.
std::vector<Setting> smaller_settings(const PreparedRun& prepared) {
  const SettingChoices choices = setting_choices(prepared);
  const Setting as_it_is;
  std::vector<Setting> stages;  // that shard more than the run does now, from stage 2 on
  for (size_t i = 0; i < choices.zero_stages.size(); ++i)
    if (static_cast<int>(i) >= std::max(1, prepared.plan.sharding.zero_stage))
      stages.push_back(choices.zero_stages[i]);
  std::vector<Setting> of_lane = {as_it_is};
  of_lane.insert(of_lane.end(), stages.begin(), stages.end());
  const auto add_parts = [&](Setting from) {
    for (const std::vector<Setting>& others : {choices.recomputations, choices.loss_rows}) {
      if (others.empty()) continue;
      from = combined(from, others[0]);
      of_lane.push_back(from);
    }
  };
  add_parts(as_it_is);
  if (!stages.empty()) add_parts(stages.back());
  std::vector<Setting> settings;
  const auto add = [&](const std::vector<Setting>& others) {
    for (const Setting& other : others)
      for (const Setting& setting : of_lane) settings.push_back(combined(other, setting));
  };
  add({as_it_is});
  add(choices.more_lanes);
  add({choices.fewer_lanes.rbegin(), choices.fewer_lanes.rend()});
  const size_t count = settings.size();
  for (const Setting& moments : choices.moments)
    for (size_t i = 0; i < count; ++i) settings.push_back(combined(moments, settings[i]));
  return settings;
}

// The first of them that fits: "with --set train.lanes=16 it would fit (other bits)"; empty if none
// does.
std::string setting_that_fits(const PreparedRun& prepared, const Need& need) {
  if (prepared.purpose != RunPurpose::kTrain) return "";
  for (const Setting& setting : smaller_settings(prepared)) {
    if (setting.set.empty()) continue;
    try {
      if (need.bytes(with_setting(prepared, setting).plan) > need.available) continue;
    } catch (const ConfigError&) {
      continue;  // it does not go with the rest of the config
    }
    return fmt::format(
        "with {} it would fit{}; ", set_options(setting), setting.same_bits ? "" : " (other bits)");
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

bool lacks_memory_for_sums(const PreparedRun& prepared, const MemoryLimits& limits) {
  return prepared.plan.sharding.lanes_at_once > 2 &&
         prepared.plan.memory.device_bytes() > limits.device_bytes;
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
