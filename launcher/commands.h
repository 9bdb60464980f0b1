#pragma once
// The commands: each file launcher/<command>.cc adds one subcommand to the command line.

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

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

// What main() runs once the command line is parsed: the command on this rank.
using Command = std::function<ExitCode(Session&)>;

// A whole number of at least `minimum`.
CLI::Validator at_least(int64_t minimum);

// A number from `low` to `high`.
CLI::Validator between(double low, double high);

// Adds the flags of what to write and what to say.
void add_output_options(CLI::App& app, CommonOptions& options);

// Adds the flags of where to run.
void add_device_options(CLI::App& app, CommonOptions& options);

// Adds the flags that change what the config file says of a run's data: --set and --data.
void add_config_options(CLI::App& app, CommonOptions& options);

// Adds all shared flags to a subcommand, those above too.
void add_common_options(CLI::App& app, CommonOptions& options);

// Each adds a subcommand to `app` that stores itself in `selected` when it is chosen.
void add_train_command(CLI::App& app, Command& selected);
void add_eval_command(CLI::App& app, Command& selected);
void add_predict_command(CLI::App& app, Command& selected);
void add_generate_command(CLI::App& app, Command& selected);
void add_plan_command(CLI::App& app, Command& selected);
void add_scale_command(CLI::App& app, Command& selected);
void add_selftest_command(CLI::App& app, Command& selected);
void add_bench_command(CLI::App& app, Command& selected);
void add_bench_collectives_command(CLI::App& bench, Command& selected);
void add_inspect_command(CLI::App& app, Command& selected);
void add_import_command(CLI::App& app, Command& selected);
void add_export_command(CLI::App& app, Command& selected);
void add_data_command(CLI::App& app, Command& selected);

}  // namespace lockstep
