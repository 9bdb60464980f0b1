#pragma once
// What the cells of a column probably are, if they are not numbers.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/tables/number_format.h"

namespace lockstep::data {

// The notation of at least nine in ten of these different cells, which are not all numbers in
// `format`. At most the first thousand cells are read.
CellNotation notation_of(std::span<const std::string> cells, const NumberFormat& format);

// The remedy for words that mark a missing value. `kept`: the words that mark one already.
std::string missing_remedy(std::vector<std::string> kept, const std::vector<std::string>& words);

// The end of a message about a cell that is not a number: "; if the file has numbers with a decimal
// comma, set data.table.decimal: ...", or "" if nothing is known. `evaluation`: the training file
// has numbers in `format`, so both files must be written alike.
std::string number_remedy(const std::string& cell, const NumberFormat& format, bool evaluation);

// Whether a cell looks like a date, a time of the day or both: "2024-01-31T12:30:05Z",
// "31/01/2024", "01.02.24", "Jan 5, 2024", "12:30". It need not exist in the calendar.
bool is_date_or_time(std::string_view cell);

}  // namespace lockstep::data
