#include "launcher/commands/checkpoint_config.h"

#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/config/parse.h"
#include "runtime/train/checkpoints/resume_check.h"

namespace lockstep {

OpenedConfig config_of_checkpoint(const std::filesystem::path& folder,
                                  const CheckpointState& state) {
  const auto imported = state.extra.find(kImportedConfigKey);
  const auto text = imported != state.extra.end() ? imported : state.extra.find(kConfigKey);
  if (text == state.extra.end())
    throw CheckpointError(
        "{}: has no config, because an old version wrote it; train one step from it, and use the "
        "new checkpoint",
        folder.string());
  OpenedConfig opened = open_config(parse_config(text->second, folder.string(), {}));
  std::optional<OpenedConfig> older = with_recorded_parameters(opened, state);
  if (!older) return opened;
  warn_of_older_revision(folder.string());
  return *std::move(older);
}

bool depends_on_checkpoint(const RunConfig& config) {
  return config.adapter.lora || std::holds_alternative<OnnxConfig>(config.model);
}

std::optional<OpenedConfig> with_recorded_parameters(const OpenedConfig& opened,
                                                     const CheckpointState& state) {
  std::set<std::string> names;
  for (const NamedSlice& slice : state.layout) names.insert(slice.name);
  const std::optional<ModelConfig> recorded = opened.model->with_recorded_parameters(names);
  if (!recorded) return std::nullopt;
  return with_model(opened, *recorded);
}

void warn_of_older_revision(const std::string& checkpoint) {
  log_warn(
      "{}: was written by an older revision, which guessed which initializers learn; the run "
      "continues to train these (model.onnx.parameters: GUESSED), although the ONNX file declares "
      "others, which a new run would train",
      checkpoint);
}

}  // namespace lockstep
