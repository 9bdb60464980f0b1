#pragma once
// Protobuf text format <-> the message of a config.

#include <cstddef>
#include <string>

#include "runtime/config/run_config.pb.h"

namespace lockstep {

inline constexpr size_t kMostConfigBytes = size_t{1} << 20;

// Parses `text`. Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first error; an unknown field
// or enum value, and a value of the wrong type, say what is allowed. Refuses text above
// kMostConfigBytes and nesting deeper than 100.
proto::RunConfig parse_text(const std::string& text, const std::string& origin);

// Text that parse_text reads back to an equal message, floats included.
std::string print_text(const proto::RunConfig& message);

}  // namespace lockstep
