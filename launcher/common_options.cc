#include "launcher/common_options.h"

#include "launcher/launch/handed_config.h"
#include "runtime/config/parse.h"
#include "runtime/run/read_config.h"

namespace lockstep {

RunConfig read_config(const CommonOptions& options) {
  const std::optional<std::string> handed = launch::handed_config();
  return read_config(options, handed ? *handed : read_config_text(options.config));
}

RunConfig read_config(const CommonOptions& options, const std::string& text) {
  RunConfig config = read_config(text, options.config, options.set);
  if (!options.data.empty()) config.data.dir = options.data;
  if (!options.run_dir.empty()) config.output.run_dir = options.run_dir;
  if (config.output.run_dir.empty()) config.output.run_dir = "runs/" + config.name;
  return config;
}

void add_output_options(CommandSpec& command, CommonOptions& options) {
  command.add("--json",
              &options.json,
              "Write the command's result to this file as JSON; -: to the standard output",
              {.per_rank = true});
  command.add("--log-level",
              &options.log_level,
              "trace, debug, info, warn, error or off",
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
              "Override a field: path.to.field=value; may be given many times",
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
              "Where to run: auto, cpu or cuda",
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
              "Queue every kernel anew instead of replaying CUDA graphs (for debugging)");
  command.add("--run-dir",
              &options.run_dir,
              "Folder for everything that the run writes, instead of output.run_dir",
              {.per_rank = true});
  add_output_options(command, options);
}

}  // namespace lockstep
