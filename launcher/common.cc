#include "launcher/commands.h"

namespace lockstep {

void add_common_options(CLI::App& app, CommonOptions& options) {
  app.add_option("CONFIG", options.config, "Config file in protobuf text format")->required();
  app.add_option(
         "--set", options.set, "Override a field: path.to.field=value; may be given many times")
      ->expected(1)
      ->take_all();
  app.add_option("--device", options.device, "Where to run: auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--data", options.data, "Folder of the data files, instead of data.dir");
  app.add_option("--run-dir",
                 options.run_dir,
                 "Folder for everything that the run writes, instead of output.run_dir");
  app.add_option("--json", options.json, "Write the command's result to this file as JSON");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
}

}  // namespace lockstep
