#pragma once
// Config text -> RunConfig, and back. All functions throw ConfigError: one line that names the field, its value and what is
// allowed, with file, line and column for syntax errors.

#include <filesystem>
#include <string>
#include <vector>

#include "runtime/config/run_config.h"

namespace lockstep {

// Parses text-format `text` (`origin` names it in errors), applies overrides "path.to.field=value" in order (a scalar field is
// replaced, a repeated field is replaced by a comma-separated list, a sub-message is created), validates every limit that run_config.h states.
// Refuses nesting deeper than 100 and text above 1 MiB.
RunConfig parse_config(const std::string& text, const std::string& origin, const std::vector<std::string>& overrides);
RunConfig load_config(const std::filesystem::path& path, const std::vector<std::string>& overrides);

// Checks that need the number of ranks: lanes divisible by ranks.
void validate_for_ranks(const RunConfig& config, int ranks);

// The resolved config, every field written out, as text that parse_config accepts and maps to an equal RunConfig.
std::string to_text(const RunConfig& config);

}  // namespace lockstep
