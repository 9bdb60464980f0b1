#include "runtime/train/state/resume_check.h"

#include <algorithm>
#include <optional>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/config/differences.h"
#include "runtime/config/parse.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep::train {
namespace {

void check_same_samples(const RunContext& context,
                        const checkpoint::CheckpointState& state,
                        const std::string& where) {
  const RunConfig& config = context.config;
  const auto require_same = [&](const char* name, auto then, auto now) {
    if (then == now) return;
    throw CheckpointError("{}: written with {} {}, the config has {}; sample order would change",
                          where,
                          name,
                          then,
                          now);
  };
  require_same("train.global_batch", state.global_batch, config.train.global_batch);
  require_same("seed", state.seed, config.seed);
  for (const auto& [key, now] : sample_order(context)) {
    const auto then = state.extra.find(key);
    if (then != state.extra.end() && then->second != now)
      throw CheckpointError("{}: written with {} {}, now {}; sample order would change",
                            where,
                            key,
                            then->second,
                            now);
  }
}

// Checks that the checkpoint has the optimizer's arrays. Two things may be added or dropped:
// residuals, and the average of the weights.
void check_same_optimizer(const RunContext& context,
                          const checkpoint::CheckpointState& state,
                          const std::string& where) {
  const OptimizerConfig& optimizer = context.config.optimizer;
  std::vector<std::string> moments = state.moments;
  std::erase_if(moments, [](const std::string& name) { return !checkpoint::is_moment(name); });
  if (state.optimizer != optimizer_name(optimizer) || moments != saved_moments(optimizer))
    throw CheckpointError(
        "{}: written with optimizer {} ({} moments), the config has {} ({} moments); to start a "
        "new run from its weights, set train.init_from",
        where,
        state.optimizer,
        moments.size(),
        optimizer_name(optimizer),
        saved_moments(optimizer).size());
}

// Without the checkpoint's residuals the run may continue, but not to the same bits.
void warn_of_lost_residuals(const checkpoint::CheckpointState& state,
                            const std::string& where,
                            const std::vector<std::string>& kept) {
  const auto dropped = std::ranges::count_if(state.moments, [&](const std::string& name) {
    return name.starts_with(checkpoint::kResidualPrefix) && std::ranges::count(kept, name) == 0;
  });
  if (dropped > 0)
    log_warn(
        "{}: {} of its arrays of compressed gradients belong to other lanes, groups or factors "
        "than this run's: they are lost, and training continues with other bits",
        where,
        dropped);
}

// Other units, GPUs or libraries than those that computed the checkpoint may give other bits.
void warn_of_other_bits(const RunContext& context,
                        const checkpoint::CheckpointState& state,
                        const std::string& where) {
  const auto then = state.extra.find(checkpoint::kBitsKey);
  if (!context.bits || then == state.extra.end() || then->second == *context.bits) return;
  log_warn("{}: computed with {}, now with {}: training continues with other bits{}",
           where,
           then->second,
           context.bits->empty() ? "a CPU" : *context.bits,
           context.choice_of_bits.empty() ? "" : fmt::format(" ({})", context.choice_of_bits));
}

// The config of the checkpoint's run. Empty if it was written before configs were stored, or by a
// version whose fields no longer exist.
std::optional<RunConfig> config_of(const checkpoint::CheckpointState& state,
                                   const std::string& where) {
  const auto text = state.extra.find(checkpoint::kConfigKey);
  if (text == state.extra.end()) return std::nullopt;
  try {
    return config::parse_recorded_config(text->second, where);
  } catch (const ConfigError& error) {
    log_warn("{}: its config is not compared with this one: {}", where, error.what());
    return std::nullopt;
  }
}

// If the checkpoint was written by a revision that treated prompts and answers as chat messages,
// and this config does not: an explanation. Otherwise empty.
std::string wrapped_before(const RunConfig& config, const checkpoint::CheckpointState& state) {
  const auto* conversations = std::get_if<ConversationsConfig>(&config.data.source);
  const auto text = state.extra.find(checkpoint::kConfigKey);
  if (conversations == nullptr || conversations->texts_as_messages || text == state.extra.end() ||
      text->second.find("texts_as_messages") != std::string::npos)
    return {};
  return " (the revision that wrote it applied the chat template to prompts and answers that are "
         "texts, as data.conversations.texts_as_messages: true does)";
}

void check_same_content(const RunContext& context,
                        const checkpoint::CheckpointState& state,
                        const std::string& where,
                        const std::vector<std::string>& allowed) {
  const auto then = state.extra.find(checkpoint::kContentKey);
  const std::string now = to_hex(context.data.summary.train_checksum);
  if (then == state.extra.end() || then->second == now || config::is_named("data", allowed)) return;
  throw CheckpointError(
      "{}: written with training data whose checksum is {}, now it is {}{}: this would be a "
      "different run; to continue anyway, give --allow-change data",
      where,
      then->second,
      now,
      wrapped_before(context.config, state));
}

void check_changes(const RunContext& context,
                   const checkpoint::CheckpointState& state,
                   const std::string& where,
                   const std::vector<std::string>& allowed) {
  const std::optional<RunConfig> before = config_of(state, where);
  const bool logs = context.communicator.rank() == 0;
  if (!before) {
    if (logs && state.lanes != context.plan.sharding.lanes)
      log_warn(
          "{}: written with {} lanes, now {}", where, state.lanes, context.plan.sharding.lanes);
    return;
  }
  std::string changes;
  for (const config::FieldChange& change : config::differences(*before, context.config)) {
    if (change.rule == config::ChangeRule::kFree) continue;
    if (change.rule == config::ChangeRule::kDecides && !config::is_named(change.path, allowed))
      throw CheckpointError(
          "{}: written with {} {}, the config has {}: this would be a different run; to continue "
          "anyway, give --allow-change {}; to start a new run from its weights, set "
          "train.init_from",
          where,
          change.path,
          change.before,
          change.now,
          change.path);
    append_item(changes, fmt::format("{} from {} to {}", change.path, change.before, change.now));
  }
  if (logs && !changes.empty()) log_warn("{}: fields have changed since: {}", where, changes);
}

}  // namespace

std::map<std::string, std::string> sample_order(const RunContext& context) {
  const data::SampleOrder order = context.data.train->order();
  std::map<std::string, std::string> texts = {
      {"data.shuffle", context.config.data.shuffle ? "true" : "false"},
      {"training samples", std::to_string(order.samples)}};
  if (order.shard_samples.empty()) return texts;
  std::string lengths;
  for (int64_t samples : order.shard_samples) lengths += std::to_string(samples) + " ";
  texts["shards"] = fmt::format(
      "{}, of lengths that hash to {:016x}", order.shard_samples.size(), hash_text(lengths));
  texts[order.window_field] = std::to_string(order.window);
  return texts;
}

void check_resumable(const RunContext& context,
                     const checkpoint::CheckpointState& state,
                     const std::filesystem::path& folder,
                     const std::vector<std::string>& residuals,
                     const std::vector<std::string>& allowed_changes) {
  const std::string where = folder.string();
  check_same_samples(context, state, where);
  if (state.step > context.config.train.steps)
    throw CheckpointError("{}: has step {}, but train.steps is only {}",
                          where,
                          state.step,
                          context.config.train.steps);
  check_same_optimizer(context, state, where);
  check_changes(context, state, where, allowed_changes);
  check_same_content(context, state, where, allowed_changes);
  if (context.communicator.rank() > 0) return;
  warn_of_other_bits(context, state, where);
  warn_of_lost_residuals(state, where, residuals);
}

}  // namespace lockstep::train
