#pragma once
// How the numbers of a table are written.

#include <string>
#include <string_view>

namespace lockstep::data {

// The defaults are those of programming languages: 1234567.5.
struct NumberFormat {
  std::string decimal = ".";  // between a number's units and its fraction
  std::string thousands;      // between groups of three digits; empty: digits are not grouped
  bool is_plain() const { return thousands.empty() && decimal.size() == 1 && decimal[0] == '.'; }
};

// Like parse_number() of csv.h, for a number in this format. Digits may be grouped, but only in
// threes: with thousands ",", "1,234,567" and "1234567" are numbers, and "12,34" and "0,123" are
// not.
bool parse_number(std::string_view text, const NumberFormat& format, double* number);

}  // namespace lockstep::data
