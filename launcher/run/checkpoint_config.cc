#include "launcher/run/checkpoint_config.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/config/parse.h"
#include "runtime/run/defaults.h"
#include "runtime/run/precision.h"

namespace lockstep::launcher {
namespace {

// The words for a missing value in a config's table, or null.
const std::vector<std::string>* missing_words(const RunConfig& config) {
  const auto* const table = std::get_if<TableConfig>(&config.data.source);
  return table != nullptr ? &table->missing : nullptr;
}

bool leaves_missing_unset(const RunConfig& config) {
  const auto* const words = missing_words(config);
  return words != nullptr && *words == TableConfig{}.missing;
}

}  // namespace

run::OpenedConfig config_of_checkpoint(const std::filesystem::path& folder,
                                       const checkpoint::CheckpointState& state,
                                       const std::vector<std::string>& overrides) {
  const auto imported = state.extra.find(checkpoint::kImportedConfigKey);
  const auto text =
      imported != state.extra.end() ? imported : state.extra.find(checkpoint::kConfigKey);
  if (text == state.extra.end())
    throw CheckpointError(
        "{}: has no config, because an old version wrote it; train one step from it, and use the "
        "new checkpoint",
        folder.string());
  run::OpenedConfig opened =
      run::open_config(config::parse_recorded_config(text->second, folder.string(), overrides));
  std::optional<run::OpenedConfig> older = with_recorded_parameters(opened, state);
  if (!older) return opened;
  warn_of_older_revision(folder.string());
  return *std::move(older);
}

std::optional<Precision> recorded_precision(const checkpoint::CheckpointState& state,
                                            const std::string& where,
                                            bool required) {
  if (state.extra.contains(checkpoint::kImportedConfigKey)) return std::nullopt;
  const auto text = state.extra.find(checkpoint::kConfigKey);
  if (text == state.extra.end()) return Precision::kFp32;  // older than configs in checkpoints
  try {
    return config::parse_recorded_config(text->second, where).execution.precision;
  } catch (const ConfigError& error) {
    if (!required) return std::nullopt;
    throw CheckpointError(
        "{}: does not show its precision, which execution.precision AUTO takes: {}; set "
        "execution.precision",
        where,
        error.what());
  }
}

RecordedChoices recorded_choices(const checkpoint::CheckpointState& state,
                                 const std::string& where,
                                 const RunConfig& config) {
  const bool imported = state.extra.contains(checkpoint::kImportedConfigKey);
  const bool required = config.execution.precision == Precision::kAuto;
  return {recorded_precision(state, where, required), imported ? 0 : state.lanes};
}

bool has_auto_choice(const RunConfig& config) {
  return config.execution.precision == Precision::kAuto || config.train.lanes == 0;
}

DType choose_generation_type(const run::OpenedConfig& opened,
                             const exec::OpSet& ops,
                             const checkpoint::CheckpointState* state,
                             const std::string& where) {
  const bool decides = opened.config.execution.precision == Precision::kAuto && state != nullptr;
  const bool required = !ops.separate_memory;  // GPUs generate in FP32 in any case
  const run::ChosenPrecision chosen =
      run::choose_precision(opened,
                            run::RunPurpose::kGenerate,
                            ops,
                            decides ? recorded_precision(*state, where, required) : std::nullopt);
  if (chosen.worth_logging) log_info("precision: {}", chosen.text());
  return run::compute_type(chosen.opened.config.execution.precision);
}

bool depends_on_checkpoint(const RunConfig& config) {
  return config.adapter.lora || std::holds_alternative<OnnxConfig>(config.model) ||
         leaves_missing_unset(config);
}

run::OpenedConfig with_recorded_missing(const run::OpenedConfig& opened,
                                        const checkpoint::CheckpointState& state,
                                        const std::string& checkpoint) {
  const std::vector<std::string> former = {"", "?", "NA", "NaN", "nan"};
  const auto text = state.extra.find(checkpoint::kConfigKey);
  if (!leaves_missing_unset(opened.config) || text == state.extra.end()) return opened;
  try {
    const RunConfig recorded = config::parse_recorded_config(text->second, checkpoint);
    const auto* const words = missing_words(recorded);
    if (words == nullptr || *words != former) return opened;
  } catch (const ConfigError&) {  // the check of changed fields reports it
    return opened;
  }
  log_info(
      "{}: was written with data.table.missing: [\"{}\"], the former default, which this run keeps",
      checkpoint,
      fmt::join(former, "\", \""));
  run::OpenedConfig kept = opened;
  std::get<TableConfig>(kept.config.data.source).missing = former;
  return kept;
}

std::optional<run::OpenedConfig> with_recorded_parameters(
    const run::OpenedConfig& opened, const checkpoint::CheckpointState& state) {
  std::set<std::string> names;
  for (const checkpoint::NamedSlice& slice : state.layout) names.insert(slice.name);
  const std::optional<ModelConfig> recorded = opened.model->with_recorded_parameters(names);
  if (!recorded) return std::nullopt;
  return run::with_model(opened, *recorded);
}

void warn_of_older_revision(const std::string& checkpoint) {
  log_warn(
      "{}: was written by an older revision, which guessed which initializers learn; the run "
      "continues to train these (model.onnx.parameters: GUESSED), although the ONNX file declares "
      "others, which a new run would train",
      checkpoint);
}

}  // namespace lockstep::launcher
