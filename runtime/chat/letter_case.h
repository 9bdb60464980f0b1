#pragma once
// Classes of characters, and upper and lower case as in Python's str: a character may become
// several ('ß' becomes 'SS'), and a sigma at the end of a word becomes 'ς' (SpecialCasing.txt of
// Unicode). All functions take valid UTF-8.

#include <cstdint>
#include <string>

namespace lockstep::chat {

std::string upper_case(const std::string& text);
std::string lower_case(const std::string& text);
// str.title(): a word begins at a letter that follows a non-letter ("It'S"); the rest is lower
// case.
std::string title_case(const std::string& text);
// Jinja's filter title: a word begins after white space, '-', '(', '{', '[' or '<' ("It's").
std::string title_words(const std::string& text);
// str.capitalize(): the first character in title case, the rest in lower case.
std::string capitalized(const std::string& text);

// Whether a character is a decimal digit in any script, or another number such as '²' or '½'.
bool is_decimal_digit(uint32_t code);
bool is_other_number(uint32_t code);
// Python's str.isprintable() for one character; repr() escapes other characters.
bool is_printable(uint32_t code);

}  // namespace lockstep::chat
