#include "launcher/commands/checkpoint_config.h"

#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "models/registry.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/config/parse.h"
#include "runtime/train/checkpoints/resume_check.h"

namespace lockstep {

RunConfig config_of_checkpoint(const std::filesystem::path& folder, const CheckpointState& state) {
  const auto imported = state.extra.find(kImportedConfigKey);
  const auto text = imported != state.extra.end() ? imported : state.extra.find(kConfigKey);
  if (text == state.extra.end())
    throw CheckpointError(
        "{}: does not say of which model it is, as it was written before configs were kept; train "
        "a step from it and export that",
        folder.string());
  RunConfig config = parse_config(text->second, folder.string(), {});
  if (adopt_recorded_parameters(state, config.model)) warn_of_older_revision(folder.string());
  return config;
}

bool depends_on_checkpoint(const RunConfig& config) {
  return config.adapter.lora || std::holds_alternative<OnnxConfig>(config.model);
}

bool adopt_recorded_parameters(const CheckpointState& state, ModelConfig& model) {
  std::set<std::string> names;
  for (const NamedSlice& slice : state.layout) names.insert(slice.name);
  std::optional<ModelConfig> recorded = with_recorded_parameters(model, names);
  if (!recorded) return false;
  model = std::move(*recorded);
  return true;
}

void warn_of_older_revision(const std::string& where) {
  log_warn(
      "{}: was written by an older revision, which guessed which initializers learn; the same ones go on "
      "learning (model.onnx.parameters: GUESSED), though the ONNX file declares others; a new run takes those",
      where);
}

}  // namespace lockstep
