#pragma once
// From a config file to a config that is known to be possible, as far as no data is needed.

#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

// The config file with overrides ("path.to.field=value") applied, and all checked that needs no
// data. Throws ConfigError.
RunConfig read_config(const std::string& path, const std::vector<std::string>& overrides);

// The same of the file's text; `path` names it in errors.
RunConfig read_config(const std::string& text,
                      const std::string& path,
                      const std::vector<std::string>& overrides);

}  // namespace lockstep
