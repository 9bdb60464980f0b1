#pragma once
// Logging through spdlog. Rank 0 speaks on stderr; other ranks only warn and fail, with their rank
// in the line.

#include <spdlog/spdlog.h>

#include <string>

namespace lockstep {

// Sets up the default logger: level is one of trace, debug, info, warn, error, off.
// Throws ConfigError on another level.
void init_log(const std::string& level, int rank, int ranks);

// Adds a file sink (RUN_DIR/log.txt, appended to). Throws IoError.
void add_log_file(const std::string& path);

// Writes a line to that file alone, where there is one: what the user sees in another form.
void log_record(const std::string& text);

}  // namespace lockstep
