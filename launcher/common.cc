#include <fmt/core.h>

#include "launcher/commands.h"

namespace lockstep {

CLI::Validator at_least(int64_t minimum) {
  return CLI::Validator(
      [minimum](std::string& text) -> std::string {
        int64_t value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        if (number && value >= minimum) return "";
        return fmt::format("value is {}; allowed: a whole number, {} or more", text, minimum);
      },
      fmt::format(">={}", minimum));
}

CLI::Validator between(double low, double high) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        if (number && value >= low && value <= high) return "";  // NaN is neither
        return fmt::format("value is {}; allowed: {} to {}", text, low, high);
      },
      fmt::format("{}..{}", low, high));
}

void add_output_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--json", options.json, "Write the command's result to this file as JSON");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
}

void add_config_options(CLI::App& app, CommonOptions& options) {
  app.add_option(
         "--set", options.set, "Override a field: path.to.field=value; may be given many times")
      ->expected(1)
      ->take_all();
  app.add_option("--data", options.data, "Folder of the data files, instead of data.dir");
}

void add_device_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--device", options.device, "Where to run: auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->envname("LOCKSTEP_DEVICE")
      ->capture_default_str();
  app.add_flag("--share-gpu",
               options.share_gpu,
               "Let several ranks use one GPU (for tests: slow, over sockets)");
}

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_option("CONFIG", options.config, "Config file in protobuf text format")->required();
  add_config_options(app, options);
  add_device_options(app, options);
  app.add_flag("--eager",
               options.eager,
               "Queue every kernel anew instead of replaying CUDA graphs (for debugging)");
  app.add_option("--run-dir",
                 options.run_dir,
                 "Folder for everything that the run writes, instead of output.run_dir");
  add_output_options(app, options);
}

}  // namespace lockstep
