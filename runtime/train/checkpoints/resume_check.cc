#include "runtime/train/checkpoints/resume_check.h"

#include <algorithm>
#include <optional>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/config/differences.h"
#include "runtime/config/parse.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {
namespace {

void check_same_samples(const RunParts& parts,
                        const CheckpointState& state,
                        const std::string& where) {
  const RunConfig& config = parts.config;
  if (state.global_batch != config.train.global_batch)
    throw CheckpointError(
        "{}: written with train.global_batch {}, the config has {}; sample order would change",
        where,
        state.global_batch,
        config.train.global_batch);
  if (state.seed != config.seed)
    throw CheckpointError("{}: written with seed {}, the config has {}; sample order would change",
                          where,
                          state.seed,
                          config.seed);
  for (const auto& [key, now] : sample_order(parts)) {
    const auto then = state.extra.find(key);
    if (then != state.extra.end() && then->second != now)
      throw CheckpointError("{}: written with {} {}, now {}; sample order would change",
                            where,
                            key,
                            then->second,
                            now);
  }
}

// An average and residuals may come and go.
void check_same_optimizer(const RunParts& parts,
                          const CheckpointState& state,
                          const std::string& where) {
  const OptimizerConfig& optimizer = parts.config.optimizer;
  std::vector<std::string> moments = state.moments;
  std::erase_if(moments, [](const std::string& name) { return !is_moment(name); });
  if (state.optimizer != optimizer_name(optimizer) || moments != moment_names(optimizer))
    throw CheckpointError(
        "{}: written with optimizer {} ({} moments), the config has {} ({} moments); to start anew "
        "from its weights, set train.init_from",
        where,
        state.optimizer,
        moments.size(),
        optimizer_name(optimizer),
        moment_names(optimizer).size());
}

// What a run may go on with, though not to the same bits.
void warn_of_lost_residuals(const CheckpointState& state,
                            const std::string& where,
                            const std::vector<std::string>& kept) {
  const auto dropped =
      std::count_if(state.moments.begin(), state.moments.end(), [&](const auto& n) {
        return n.starts_with(kResidualPrefix) &&
               std::find(kept.begin(), kept.end(), n) == kept.end();
      });
  if (dropped > 0)
    log_warn(
        "{}: {} of its arrays of compressed gradients are of other lanes, groups or factors than "
        "this run's: what they keep is lost, and training goes on with other bits",
        where,
        dropped);
}

// The config that the checkpoint's run had; nothing where it was written before configs were kept,
// or by a version whose fields are no longer there.
std::optional<RunConfig> config_of(const CheckpointState& state, const std::string& where) {
  const auto text = state.extra.find(kConfigKey);
  if (text == state.extra.end()) return std::nullopt;
  try {
    return parse_config(text->second, where, {});
  } catch (const ConfigError& error) {
    log_warn("{}: its config is not compared with this one: {}", where, error.what());
    return std::nullopt;
  }
}

// What older revisions made of prompts and answers that are texts, where the checkpoint is of such a one and
// the config of now does otherwise; or nothing.
std::string wrapped_before(const RunConfig& config, const CheckpointState& state) {
  const auto* conversations = std::get_if<ConversationsConfig>(&config.data.source);
  const auto text = state.extra.find(kConfigKey);
  if (conversations == nullptr || conversations->texts_as_messages || text == state.extra.end() ||
      text->second.find("texts_as_messages") != std::string::npos)
    return {};
  return " (the revision that wrote it put prompts and answers that are texts into the chat template, as "
         "data.conversations.texts_as_messages: true does)";
}

void check_same_content(const RunParts& parts,
                        const CheckpointState& state,
                        const std::string& where,
                        const std::vector<std::string>& allowed) {
  const auto then = state.extra.find(kContentKey);
  const std::string now = to_hex(parts.data.summary.train_content);
  if (then == state.extra.end() || then->second == now || is_named("data", allowed)) return;
  throw CheckpointError(
      "{}: written with training data whose checksum is {}, now it is {}{}: it would be another run; "
      "to go on all the same give --allow-change data",
      where,
      then->second,
      now,
      wrapped_before(parts.config, state));
}

void check_changes(const RunParts& parts,
                   const CheckpointState& state,
                   const std::string& where,
                   const std::vector<std::string>& allowed) {
  const std::optional<RunConfig> before = config_of(state, where);
  const bool tells = parts.communicator.rank() == 0;
  if (!before) {
    if (tells && state.lanes != parts.plan.lanes)
      log_warn("{}: written with {} lanes, now {}", where, state.lanes, parts.plan.lanes);
    return;
  }
  std::string told;
  for (const FieldChange& change : differences(*before, parts.config)) {
    if (change.rule == ChangeRule::kFree) continue;
    if (change.rule == ChangeRule::kDecides && !is_named(change.path, allowed))
      throw CheckpointError(
          "{}: written with {} {}, the config has {}: it would be another run; to go on all the "
          "same give --allow-change {}, to start anew from its weights set train.init_from",
          where,
          change.path,
          change.before,
          change.now,
          change.path);
    told += fmt::format(
        "{}{} from {} to {}", told.empty() ? "" : ", ", change.path, change.before, change.now);
  }
  if (tells && !told.empty()) log_warn("{}: fields have changed since: {}", where, told);
}

}  // namespace

std::map<std::string, std::string> sample_order(const RunParts& parts) {
  const SampleOrder order = parts.data.train->order();
  std::map<std::string, std::string> texts = {
      {"data.shuffle", parts.config.data.shuffle ? "true" : "false"},
      {"training samples", std::to_string(order.samples)}};
  if (order.shard_samples.empty()) return texts;
  std::string lengths;
  for (int64_t samples : order.shard_samples) lengths += std::to_string(samples) + " ";
  texts["shards"] = fmt::format(
      "{}, of lengths that hash to {:016x}", order.shard_samples.size(), hash_text(lengths));
  texts[order.window_field] = std::to_string(order.window);
  return texts;
}

void check_resumable(const RunParts& parts,
                     const CheckpointState& state,
                     const std::filesystem::path& folder,
                     const std::vector<std::string>& residuals,
                     const std::vector<std::string>& allowed_changes) {
  const std::string where = folder.string();
  check_same_samples(parts, state, where);
  if (state.step > parts.config.train.steps)
    throw CheckpointError(
        "{}: is of step {}; train.steps is only {}", where, state.step, parts.config.train.steps);
  check_same_optimizer(parts, state, where);
  check_changes(parts, state, where, allowed_changes);
  check_same_content(parts, state, where, allowed_changes);
  if (parts.communicator.rank() == 0) warn_of_lost_residuals(state, where, residuals);
}

}  // namespace lockstep
