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

// As std::string_view::find, but in linear time whatever the texts are.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);

// The words between spaces.
std::vector<std::string> words_of(const std::string& text);

}  // namespace lockstep
