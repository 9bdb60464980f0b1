#include "runtime/run/read_config.h"

#include "models/huggingface/folder.h"
#include "runtime/base/duration.h"
#include "runtime/config/parse.h"

namespace lockstep::run {

RunConfig read_config(const std::string& text,
                      const std::string& path,
                      const ConfigOverrides& overrides) {
  RunConfig config = config::parse_config(text, path, overrides.set, huggingface::find_model);
  if (!overrides.data_dir.empty()) config.data.dir = overrides.data_dir;
  if (!overrides.run_dir.empty()) config.output.run_dir = overrides.run_dir;
  if (config.output.run_dir.empty()) config.output.run_dir = "runs/" + config.name;
  if (!overrides.walltime.empty())
    config.train.walltime_minutes = require_duration("--walltime", overrides.walltime) / 60;
  return config;
}

}  // namespace lockstep::run
