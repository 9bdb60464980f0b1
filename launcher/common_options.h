#pragma once
// The flags that commands share.

#include <string>
#include <vector>

#include "launcher/command_line.h"
#include "runtime/config/run_config.h"

namespace lockstep {

// Flags that every command about a run shares.
struct CommonOptions {
  std::string config;            // path of the config file
  std::vector<std::string> set;  // --set path.to.field=value
  std::string device = "auto";   // auto, cpu, cuda
  bool share_gpu = false;        // --share-gpu: several ranks on one GPU
  bool eager = false;            // --eager: no CUDA graphs
  std::string data;              // --data: folder of the data files
  std::string run_dir;           // --run-dir
  std::string json;              // --json: the result as a JSON file
  std::string log_level = "info";
};

// The config file with --set, --data and --run-dir applied: see runtime/run/read_config.h. A rank
// that `launch` has started takes the text that this had read, whatever the file has now. Throws
// ConfigError.
RunConfig read_config(const CommonOptions& options);
// The same, with `text` as that of the file.
RunConfig read_config(const CommonOptions& options, const std::string& text);

// Adds the flags of what to write and what to say.
void add_output_options(CommandSpec& command, CommonOptions& options);

// Adds the flags of where to run.
void add_device_options(CommandSpec& command, CommonOptions& options);

// Adds CONFIG, the config file.
void add_config_argument(CommandSpec& command, CommonOptions& options);

// Adds --set, which overrides fields of the config file.
void add_set_option(CommandSpec& command, CommonOptions& options);

// Adds the flags that change what the config file says of a run's data: --set and --data.
void add_config_options(CommandSpec& command, CommonOptions& options);

// Adds all shared flags to a command, those above too.
void add_common_options(CommandSpec& command, CommonOptions& options);

}  // namespace lockstep
