#include "launcher/commands/checkpoint_config.h"

#include "runtime/base/error.h"
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
  return parse_config(text->second, folder.string(), {});
}

}  // namespace lockstep
