#include "runtime/run/read_config.h"

#include <optional>

#include "models/huggingface/folder.h"
#include "runtime/base/duration.h"
#include "runtime/base/error.h"
#include "runtime/config/parse.h"

namespace lockstep::run {
namespace {

double walltime_minutes(const std::string& text) {
  const std::optional<double> seconds = parse_duration(text);
  if (!seconds || *seconds <= 0)
    throw ConfigError(
        "--walltime: value is '{}'; allowed: 90m, 2.5h, 1d12h or HOURS:MINUTES:SECONDS, above 0",
        text);
  return *seconds / 60;
}

}  // namespace

RunConfig read_config(const std::string& text,
                      const std::string& path,
                      const ConfigOverrides& overrides) {
  RunConfig config = config::parse_config(text, path, overrides.set, huggingface::find_model);
  if (!overrides.data_dir.empty()) config.data.dir = overrides.data_dir;
  if (!overrides.run_dir.empty()) config.output.run_dir = overrides.run_dir;
  if (config.output.run_dir.empty()) config.output.run_dir = "runs/" + config.name;
  if (!overrides.walltime.empty())
    config.train.walltime_minutes = walltime_minutes(overrides.walltime);
  return config;
}

}  // namespace lockstep::run
