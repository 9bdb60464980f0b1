#pragma once
// Text utilities.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Escapes control characters, for example as \n or \x1b: names from files must not move a
// terminal's cursor or split a line. UTF-8 stays as it is.
std::string escape_controls(std::string_view text);

// The same for our own text, which may have several lines: line breaks and tabs stay.
std::string escape_controls_in_lines(std::string_view text);

// Like std::string_view::find, but always in linear time.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);

// The words of a text, which are separated by white space.
std::vector<std::string> words_of(const std::string& text);

}  // namespace lockstep
