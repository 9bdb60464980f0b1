#pragma once
// The header of a delimited table, and messages about it.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Lists the first names for a message, quoted by quote_cell(): "'id', 'text' and 3 more".
std::string list_names(const std::vector<std::string_view>& names);

// The index of the column with the name `wanted`, if there is one. Throws DataError if two columns
// have that name. `file`: the file's name, for messages.
std::optional<size_t> find_name(const std::string& file,
                                const std::vector<std::string_view>& names,
                                std::string_view wanted);

// Throws DataError because the columns with these indices have the same name.
[[noreturn]] void refuse_equal_names(const std::string& file,
                                     size_t first,
                                     size_t second,
                                     std::string_view name);

// The error of a row with `cells` cells if the header has `width`, or "".
std::string problem_of_width(size_t cells, size_t width);

}  // namespace lockstep
