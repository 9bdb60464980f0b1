#pragma once
// Stage 1 of a run's preparation: from the text of a config file to a config. Opens nothing else.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep::run {

// The values that the command line gives in place of the config file's. Empty fields override
// nothing.
struct ConfigOverrides {
  std::vector<std::string> set = {};  // "path.to.field=value", in order
  std::string data_dir = {};          // data.dir
  std::string run_dir = {};           // output.run_dir
  std::string walltime = {};          // train.walltime_minutes, as --walltime: "90m", "1d12h"
};

// The config of a file's text with the overrides applied; `path` names the file in errors. By
// default the run folder is "runs/" and the run's name. Throws ConfigError.
RunConfig read_config(const std::string& text,
                      const std::string& path,
                      const ConfigOverrides& overrides);

}  // namespace lockstep::run
