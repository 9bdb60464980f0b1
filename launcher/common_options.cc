#include "launcher/common_options.h"

#include "launcher/launch/handed_config.h"
#include "runtime/config/parse.h"
#include "runtime/run/config_checks.h"
#include "runtime/run/read_config.h"

namespace lockstep {

OpenedConfig read_config(const CommonOptions& options, const std::string& walltime) {
  const std::optional<std::string> handed = launch::handed_config();
  return read_config_of(handed ? *handed : read_config_text(options.config), options, walltime);
}

OpenedConfig read_config_of(const std::string& text,
                            const CommonOptions& options,
                            const std::string& walltime) {
  const ConfigOverrides overrides = {.set = options.set,
                                     .data_dir = options.data,
                                     .run_dir = options.run_dir,
                                     .walltime = walltime};
  OpenedConfig opened = open_config(read_config(text, options.config, overrides));
  check_config(opened);
  return opened;
}

void add_output_options(CommandSpec& command, CommonOptions& options) {
  command.add("--json",
              &options.json,
              "Write the command's result to this file as JSON; - is the standard output",
              {.per_rank = true});
  command.add("--log-level",
              &options.log_level,
              "Log level: trace, debug, info, warn, error or off",
              {.show_default = true,
               .allowed = OneOf{{"trace", "debug", "info", "warn", "error", "off"}},
               .per_rank = true});
}

void add_config_argument(CommandSpec& command, CommonOptions& options) {
  command.add("CONFIG",
              &options.config,
              "Config file in protobuf text format",
              {.required = true, .per_rank = true});
}

void add_set_option(CommandSpec& command, CommonOptions& options) {
  command.add("--set",
              &options.set,
              "Override a field: path.to.field=value; can be repeated",
              {.one_each_time = true, .per_rank = true});
}

void add_config_options(CommandSpec& command, CommonOptions& options) {
  add_set_option(command, options);
  command.add(
      "--data", &options.data, "Folder of the data files, instead of data.dir", {.per_rank = true});
}

void add_device_options(CommandSpec& command, CommonOptions& options) {
  command.add("--device",
              &options.device,
              "Device to run on: auto, cpu or cuda",
              {.show_default = true,
               .allowed = OneOf{{"auto", "cpu", "cuda"}},
               .environment = "LOCKSTEP_DEVICE",
               .per_rank = true});
  command.add("--share-gpu",
              &options.share_gpu,
              "Let several ranks use one GPU (for tests: slow, over sockets)");
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
              {.per_rank = true});
  add_output_options(command, options);
}

}  // namespace lockstep
