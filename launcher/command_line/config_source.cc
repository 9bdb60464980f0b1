#include "launcher/command_line/config_source.h"

#include <fmt/core.h>

#include "models/huggingface/folder.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/checkpoint/format/folder.h"
#include "runtime/checkpoint/format/reader.h"
#include "runtime/checkpoint/format/state.h"
#include "runtime/config/parse.h"

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunConfig = "config.textproto";
constexpr const char* kCheckpoints = "checkpoints";
constexpr const char* kBest = "best";

bool has_checkpoints(const fs::path& folder) {
  return is_folder(folder) && !checkpoint::list_checkpoints(folder).empty();
}

// The best checkpoint of a run folder, or of a folder of checkpoints, if it has one; otherwise the
// newest. `why`: which of both.
fs::path checkpoint_to_use(const fs::path& folder, const char** why) {
  const fs::path below = folder / kCheckpoints;
  if (const auto best = checkpoint::read_best(is_folder(below) ? below : folder)) {
    *why = "best";
    return best->path;
  }
  *why = "newest";
  return checkpoint::resolve_checkpoint(folder);
}

std::string text_in(const fs::path& folder) {
  const checkpoint::CheckpointState state = checkpoint::read_state(folder);
  for (const char* key : {checkpoint::kImportedConfigKey, checkpoint::kConfigKey})
    if (const auto found = state.extra.find(key); found != state.extra.end()) return found->second;
  throw CheckpointError(
      "{}: has no config, because an old version wrote it; give the config file, and the "
      "checkpoint with --checkpoint",
      folder.string());
}

}  // namespace

ConfigPlace find_config(const std::string& path) {
  fs::path given = path;
  if (!given.has_filename() && given.has_parent_path()) given = given.parent_path();  // "runs/x/"
  if (is_file(given / checkpoint::kStateFile)) return {.checkpoint = given};
  if (given.filename() == kBest && has_checkpoints(given.parent_path()))
    return {.checkpoint = checkpoint::resolve_checkpoint(given)};
  if (!is_folder(given)) return {.file = path};
  const fs::path above = given.parent_path();
  if (given.filename() == kCheckpoints && is_file(above / kRunConfig)) given = above;
  if (is_file(given / kRunConfig)) return {.file = given / kRunConfig, .run_folder = given};
  const char* why = nullptr;
  if (has_checkpoints(given / kCheckpoints))
    return {.run_folder = given, .checkpoint = checkpoint_to_use(given, &why)};
  if (has_checkpoints(given)) return {.checkpoint = checkpoint_to_use(given, &why)};
  throw ConfigError(
      "config '{}' is a folder without {}; allowed: a config file, the folder of a run that has "
      "begun, or a checkpoint (step-*){}",
      path,
      kRunConfig,
      huggingface::is_model_folder(given)
          ? fmt::format("; a config names a model's folder: model {{ from: \"{}\" }}", path)
          : "");
}

ConfigText read_config_at(const std::string& path) {
  const ConfigPlace place = find_config(path);
  if (!place.file.empty()) return {config::read_config_text(place.file), place.file, place};
  return {text_in(place.checkpoint), place.checkpoint, place};
}

std::optional<fs::path> choose_checkpoint(const std::string& given, const std::string& config) {
  if (!given.empty()) return checkpoint::resolve_checkpoint(given);
  const ConfigPlace place = find_config(config);
  if (place.run_folder.empty()) {
    if (place.checkpoint.empty()) return std::nullopt;
    return place.checkpoint;
  }
  if (!has_checkpoints(place.run_folder / kCheckpoints))
    throw CheckpointError(
        "run folder '{}' has no checkpoint yet; give another one with --checkpoint",
        place.run_folder.string());
  return weights_at(place.run_folder);
}

fs::path weights_at(const fs::path& path) {
  if (!is_folder(path / kCheckpoints)) return checkpoint::resolve_checkpoint(path);
  const char* why = nullptr;
  const fs::path chosen = checkpoint_to_use(path, &why);
  log_info("checkpoint: {}, the {} of the run", chosen.string(), why);
  return chosen;
}

}  // namespace lockstep::launcher
