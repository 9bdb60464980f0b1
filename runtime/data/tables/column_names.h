#pragma once
// The first line of a delimited table, which names its columns, and the rows that must fit it.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// "'id', 'text' and 3 more": the first names, as quote_cell() writes them.
std::string list_names(const std::vector<std::string_view>& names);

// The number of the column that has the name `wanted`; none: there is no such column. Throws
// DataError where two columns have it. `file`: the file's name, for messages.
std::optional<size_t> find_name(const std::string& file,
                                const std::vector<std::string_view>& names,
                                std::string_view wanted);

// Throws DataError: the columns of these numbers have the same name.
[[noreturn]] void refuse_equal_names(const std::string& file,
                                     size_t first,
                                     size_t second,
                                     std::string_view name);

// What is wrong with a row of `cells` where the first line has `width`; empty: nothing.
std::string problem_of_width(size_t cells, size_t width);

}  // namespace lockstep
