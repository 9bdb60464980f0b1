#pragma once

#include <string>
#include <string_view>

namespace lockstep::config {

// Rewrites an error of protobuf's text parser as "LINE:COLUMN: ...", counted from 1, in bytes,
// pointing at the offending name or value, with the field and what is allowed if they are known.
// `line` and `column` are the parser's: they count from 0, and a tab moves the column to a multiple
// of 8.
std::string describe_text_error(std::string_view text,
                                int line,
                                int column,
                                const std::string& message);

}  // namespace lockstep::config
