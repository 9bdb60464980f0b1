#pragma once
// Text for messages.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The text with its control characters as \n, \t or \x1b: names from files must not move a
// terminal's cursor, or make two lines of one. UTF-8 stays.
std::string escape_controls(std::string_view text);

// The same for text of our own that may have lines: these stay.
std::string escape_controls_in_lines(std::string_view text);

// The words between spaces.
std::vector<std::string> words_of(const std::string& text);

}  // namespace lockstep
