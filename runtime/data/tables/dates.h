#pragma once
// Dates and times as people write them.

#include <string_view>

namespace lockstep::data {

// Whether a cell looks like a date, a time of the day or both: "2024-01-31T12:30:05Z",
// "31/01/2024", "01.02.24", "Jan 5, 2024", "12:30". It need not exist in the calendar.
bool is_date_or_time(std::string_view cell);

}  // namespace lockstep::data
