#pragma once
// Kinds of characters, and upper and lower case of texts, as Python's str has it: a character may
// become several ('ß' is 'SS'), and a sigma at the end of a word is 'ς' (SpecialCasing.txt of
// Unicode). All take valid UTF-8.

#include <cstdint>
#include <string>

namespace lockstep::chat {

std::string upper_case(const std::string& text);
std::string lower_case(const std::string& text);
// str.title(): letters behind what is no letter begin words, "It'S"; the rest is lower case.
std::string title_case(const std::string& text);
// Jinja's filter title: words begin behind white space, '-', '(', '{', '[' and '<', "It's".
std::string title_words(const std::string& text);
// str.capitalize(): the first character in title case, the rest in lower case.
std::string capitalized(const std::string& text);

// Whether a character is a digit of whole numbers, in any script, or another number: '²', '½'.
bool is_decimal_digit(uint32_t code);
bool is_other_number(uint32_t code);
// Python's str.isprintable() of a character, without which its repr() is an escape.
bool is_printable(uint32_t code);

}  // namespace lockstep::chat
