#pragma once
// Upper and lower case of texts, character by character.

#include <string>

namespace lockstep::chat {

// Of valid UTF-8. Characters whose case is several characters ('ß') stay as they are in upper case.
std::string upper_case(const std::string& text);
std::string lower_case(const std::string& text);
// Words begin with upper case, the rest is lower case.
std::string title_case(const std::string& text);
// The first character in upper case, the rest in lower case.
std::string capitalized(const std::string& text);

}  // namespace lockstep::chat
