#include "launcher/command_line/common_options.h"

#include <cstdlib>

#include "launcher/command_line/config_source.h"
#include "launcher/command_line/handed_config.h"
#include "runtime/run/config_checks.h"
#include "runtime/run/read_config.h"

namespace lockstep::launcher {
namespace {

constexpr const char* kDeviceVariable = "LOCKSTEP_DEVICE";

}  // namespace

run::OpenedConfig read_config(const CommonOptions& options,
                              const std::string& walltime,
                              run::RunPurpose purpose) {
  if (const std::optional<std::string> handed = handed_config())
    return read_config_of(*handed, options, walltime, purpose);
  const ConfigText found = read_config_at(options.config);
  CommonOptions at_place = options;
  at_place.config = found.origin;
  if (at_place.run_dir.empty()) at_place.run_dir = found.place.run_folder;
  return read_config_of(found.text, at_place, walltime, purpose);
}

run::OpenedConfig read_config_of(const std::string& text,
                                 const CommonOptions& options,
                                 const std::string& walltime,
                                 run::RunPurpose purpose) {
  const run::ConfigOverrides overrides = {.set = options.set,
                                          .data_dir = options.data,
                                          .run_dir = options.run_dir,
                                          .walltime = walltime};
  run::OpenedConfig opened = run::open_config(run::read_config(text, options.config, overrides));
  run::check_config(opened, purpose);
  return opened;
}

void add_output_options(CommandSpec& command, CommonOptions& options) {
  command.add("--json",
              &options.json,
              "Write the command's result to this file as JSON; - is the standard output",
              {.per_rank = true, .also = "json_out output_json result"});
  command.add("--log-level",
              &options.log_level,
              "Log level: trace, debug, info, warn, error or off",
              {.show_default = true,
               .allowed = OneOf{{"trace", "debug", "info", "warn", "error", "off"}},
               .per_rank = true,
               .also = "verbose=debug v=debug debug=debug quiet=warn q=warn silent=off "
                       "warning=warn loglevel verbosity"});
}

void add_config_argument(CommandSpec& command, CommonOptions& options) {
  command.add(
      "CONFIG",
      &options.config,
      "Config file (protobuf text format or JSON); or the folder of a run or a checkpoint, whose "
      "config is meant",
      {.required = true, .per_rank = true, .also = "config config_file config_path cfg conf c f"});
}

void add_set_option(CommandSpec& command, CommonOptions& options) {
  command.add(
      "--set",
      &options.set,
      "Override a field: path.to.field=value; can be repeated",
      {.one_each_time = true, .per_rank = true, .also = "override overrides cfg_options opts"});
}

void add_config_options(CommandSpec& command, CommonOptions& options) {
  add_set_option(command, options);
  command.add("--data",
              &options.data,
              "Folder of the data files, instead of data.dir",
              {.per_rank = true,
               .also = "data_dir dir dataset data_path data_root data_folder root train_dir"});
}

std::string device_of_environment() {
  const char* const value = std::getenv(kDeviceVariable);
  return value == nullptr ? "" : value;
}

void add_device_options(CommandSpec& command, CommonOptions& options) {
  command.add("--device",
              &options.device,
              "Device to run on: auto, cpu or cuda",
              {.show_default = true,
               .allowed = OneOf{{"auto", "cpu", "cuda"}},
               .environment = kDeviceVariable,
               .per_rank = true,
               .also = "gpu=cuda cuda=cuda use_gpu=cuda use_cuda=cuda gpu_id=cuda 0=cuda cpu=cpu "
                       "no_cuda=cpu use_cpu=cpu no_gpu=cpu accelerator"});
  command.add("--share-gpu",
              &options.share_gpu,
              "Let several ranks use one GPU (for tests: slow, over sockets)");
}

void add_threads_option(CommandSpec& command,
                        int& threads,
                        const std::string& help,
                        const std::string& also) {
  command.add("--threads",
              &threads,
              help,
              {.show_default = true, .allowed = WholeNumbers{0, 1024}, .also = also});
}

void add_common_options(CommandSpec& command, CommonOptions& options) {
  add_config_argument(command, options);
  add_config_options(command, options);
  add_device_options(command, options);
  command.add("--eager",
              &options.eager,
              "Launch every kernel individually instead of replaying CUDA graphs (for debugging)");
  command.add("--run-dir",
              &options.run_dir,
              "Folder for everything that the run writes, instead of output.run_dir",
              {.per_rank = true,
               .also = "output_dir out_dir outdir output out o log_dir logging_dir logdir save_dir "
                       "work_dir workdir tensorboard_dir run_folder"});
  add_output_options(command, options);
}

}  // namespace lockstep::launcher
