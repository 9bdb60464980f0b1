#pragma once
// How the numbers of a table are written, and numbers with something before or after them: "$12",
// "12 kg", "5%", "(3)".

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// What the cells of a column probably are.
struct CellNotation {
  std::string what;            // "numbers with a decimal comma"; empty: unknown
  std::string remedy;          // "set data.table.decimal: \",\""; empty: leave the column out
  bool is_number = false;      // numbers that are written otherwise, so never meant as categories
  bool other_decimal = false;  // the remedy sets data.table.decimal, which applies to all columns
  std::vector<std::string> words = {};  // beside numbers, which may mark a missing value
};

// The notation of at least nine in ten cells, if they are numbers with one of a few affixes.
CellNotation affixed_numbers(std::span<const std::string> cells, const NumberFormat& format);

}  // namespace lockstep::data
