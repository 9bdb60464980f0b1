#pragma once
// What the argument CONFIG names: a config file, a run folder or a checkpoint.

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::launcher {

// Where a config is. A run folder has config.textproto, or only checkpoints, as `import` may write
// them; a checkpoint is a step-* folder, checkpoints/best or a folder of checkpoints without a run,
// and has the config of its run.
struct ConfigPlace {
  std::filesystem::path file = {};        // empty: the config is in a checkpoint
  std::filesystem::path run_folder = {};  // empty: CONFIG is no run folder
  std::filesystem::path checkpoint = {};  // the checkpoint that CONFIG is or that has the config
};

// Finds the place. Throws ConfigError for a folder that is neither a run folder nor a checkpoint.
ConfigPlace find_config(const std::string& path);

struct ConfigText {
  std::string text;
  std::string origin;  // names the text in errors
  ConfigPlace place;
};

// Reads the config. Throws ConfigError, and CheckpointError if a checkpoint cannot be read.
ConfigText read_config_at(const std::string& path);

// The checkpoint that --checkpoint names. If `given` is empty, the one that CONFIG names: the
// checkpoint itself, or that of the run folder: its best one if it has one, otherwise its newest;
// the log then reports which. Nothing if CONFIG is a file. Throws CheckpointError if there is none.
std::optional<std::filesystem::path> choose_checkpoint(const std::string& given,
                                                       const std::string& config);

// The checkpoint whose weights are meant if a command is given only `path`: that of a run folder as
// above; otherwise as checkpoint::resolve_checkpoint().
std::filesystem::path weights_at(const std::filesystem::path& path);

}  // namespace lockstep::launcher
