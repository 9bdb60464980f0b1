#pragma once
// The names of a table's columns, and messages about them.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

// A cell or a name for a message: in quotes, truncated, with control characters escaped.
std::string quote_cell(std::string_view cell);

// A column's name in the form in which names are compared: normal_name(), without byte order marks
// and without white space around it, and with ordinary spaces for others. Empty: no name.
std::string column_key(std::string_view name);

// Whether a name says that a column numbers or names its rows: "index", "PassengerId", "row_id".
bool is_id_name(std::string_view key);

// Lists the first names for a message, quoted by quote_cell(): "'id', 'text' and 3 more".
std::string list_names(const std::vector<std::string_view>& names);

// The index of the column with the name `wanted`, if there is one; names are compared by
// column_key(). Throws DataError if two columns have that name. `file`: the file's name, for
// messages.
std::optional<size_t> find_name(const std::string& file,
                                const std::vector<std::string_view>& names,
                                std::string_view wanted);

// Throws DataError if two of the names of a header have the same key, which is not empty.
void check_unique(const std::string& file, const std::vector<std::string>& names);

// The error of a row with `cells` cells if the header has `width`, or "".
std::string problem_of_width(size_t cells, size_t width);

}  // namespace lockstep::data
