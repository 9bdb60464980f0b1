#pragma once
// Characters that look like ASCII and are not. Word processors, web pages and chats put them into
// texts: no-break spaces, curly quotes, long dashes, letters of other alphabets.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// The offset of the first character from `from` on that is not ASCII, or npos.
size_t find_non_ascii(std::string_view text, size_t from = 0);

// The character at an offset, which is not ASCII, in words, with what to write instead:
// "'“' (U+201C) is a curly quote; write \" instead".
std::string describe_odd_character(std::string_view text, size_t at);

// Whether it is a space other than " ", such as the no-break space.
bool is_odd_blank(std::string_view text, size_t at);

// Whether it is a quote other than ' and ", such as “ or «.
bool is_odd_quote(std::string_view text, size_t at);

}  // namespace lockstep
