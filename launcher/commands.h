#pragma once
// The commands: each file launcher/<command>.cc declares one.

#include <memory>
#include <string>
#include <vector>

#include "launcher/command_line.h"
#include "launcher/session.h"
#include "runtime/base/error.h"

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

// The commands, each with its subcommands.
CommandSpec train_command();
CommandSpec eval_command();
CommandSpec predict_command();
CommandSpec generate_command();
CommandSpec plan_command();
CommandSpec scale_command();
CommandSpec selftest_command();
CommandSpec bench_command();
CommandSpec bench_collectives_command();
CommandSpec inspect_command();
CommandSpec import_command();
CommandSpec export_command();
CommandSpec data_command();

}  // namespace lockstep
