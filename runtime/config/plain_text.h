#pragma once
// What an editor, a word processor or another program may have left in the text of a config.

#include <string>
#include <string_view>

namespace lockstep::config {

// The text with "\n" at the end of each line and without a byte order mark.
std::string with_plain_lines(std::string_view text);

// Throws ConfigError "ORIGIN:LINE:COLUMN: ..." for the first character outside of quotes and
// comments that is not ASCII, or for a curly quote in a text whose quotes do not end on its line.
// The text has plain lines.
void refuse_odd_characters(std::string_view text, const std::string& origin);

// "LINE:COLUMN" of an offset, from 1, in bytes.
std::string place_in(std::string_view text, size_t offset);

}  // namespace lockstep::config
