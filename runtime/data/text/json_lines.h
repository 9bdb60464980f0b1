#pragma once
// Files with a JSON object on each line.

#include <string>
#include <string_view>

#include "runtime/base/json.h"

namespace lockstep::data {

// Throws DataError if a text is JSON but not an object on each line: one array, or objects that are
// spread over several lines. `name`: the file's, for the message, which has a command that converts
// the file.
void require_json_lines(std::string_view text, const std::string& name);

// What is wrong with a line that is not JSON, with the column.
std::string problem_in_line(const JsonError& error);

}  // namespace lockstep::data
