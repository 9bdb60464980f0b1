#pragma once

#include <optional>
#include <string>

namespace lockstep {

// Seconds of a length of time as people write it, "90s", "45m", "2.5h", "1d12h", or as Slurm does,
// "HOURS:MINUTES:SECONDS", with "DAYS-" before it or not; nothing where the text is none.
std::optional<double> parse_duration(const std::string& text);

}  // namespace lockstep
