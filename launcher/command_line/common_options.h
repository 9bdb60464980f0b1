#pragma once
// The flags that commands share.

#include <string>
#include <vector>

#include "launcher/command_line/command_line.h"
#include "runtime/run/open_data.h"

namespace lockstep::launcher {

// Flags that every command about a run shares.
struct CommonOptions {
  std::string config;            // path of a config file, a run folder or a checkpoint
  std::vector<std::string> set;  // --set path.to.field=value
  std::string device = "auto";   // auto, cpu, cuda
  bool share_gpu = false;        // --share-gpu: several ranks on one GPU
  bool eager = false;            // --eager: no CUDA graphs
  std::string data;              // --data: folder of the data files
  std::string run_dir;           // --run-dir
  std::string json;              // --json: the result as a JSON file
  std::string log_level = "info";
};

// Reads the config that CONFIG names (see config_source.h), applies --set, --data, --run-dir and
// `walltime` (of --walltime), opens the model, and runs all checks that need no data. A run folder
// as CONFIG is also the config's run folder, unless --run-dir is given. A rank started by `launch`
// uses the text that `launch` has read, even if the file has changed since. Throws ConfigError.
run::OpenedConfig read_config(const CommonOptions& options,
                              const std::string& walltime = "",
                              run::RunPurpose purpose = run::RunPurpose::kTrain);
// The same, with `text` in place of the contents of the file that CONFIG names.
run::OpenedConfig read_config_of(const std::string& text,
                                 const CommonOptions& options,
                                 const std::string& walltime = "",
                                 run::RunPurpose purpose = run::RunPurpose::kTrain);

// Adds the flags for results and logging.
void add_output_options(CommandSpec& command, CommonOptions& options);

// The device that the environment chooses, LOCKSTEP_DEVICE; empty if it chooses none.
std::string device_of_environment();

// Adds the flags for the device.
void add_device_options(CommandSpec& command, CommonOptions& options);

// Adds CONFIG.
void add_config_argument(CommandSpec& command, CommonOptions& options);

// Adds --set, which overrides fields of the config file.
void add_set_option(CommandSpec& command, CommonOptions& options);

// Adds --set and --data, which override fields of the config file.
void add_config_options(CommandSpec& command, CommonOptions& options);

// Adds --threads, which commands about data share. `also`: names that users of other programs try.
void add_threads_option(CommandSpec& command,
                        int& threads,
                        const std::string& help,
                        const std::string& also = "workers num_workers jobs j");

// Adds all shared flags to a command, including those above.
void add_common_options(CommandSpec& command, CommonOptions& options);

}  // namespace lockstep::launcher
