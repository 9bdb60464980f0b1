#pragma once

#include <optional>
#include <string>

namespace lockstep {

// Parses a duration as people write it ("90s", "45m", "2.5h", "1d12h") or as Slurm does
// ("HOURS:MINUTES:SECONDS", or with "DAYS-" in front). Returns seconds, or no value if the text is
// no duration.
std::optional<double> parse_duration(const std::string& text);

// The same for the value of an option. Throws ConfigError if it is no duration above 0.
double require_duration(const char* flag, const std::string& text);

}  // namespace lockstep
