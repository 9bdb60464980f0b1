#pragma once
// Numbers with something before or after them: "$12", "12 kg", "5%", "(3)".

#include <span>
#include <string>
#include <vector>

#include "runtime/data/tables/number_format.h"

namespace lockstep::data {

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
