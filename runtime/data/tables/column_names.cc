#include "runtime/data/tables/column_names.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/data/tables/table_columns.h"

namespace lockstep {
namespace {

constexpr size_t kNamesShown = 8;

}  // namespace

std::string list_names(const std::vector<std::string_view>& names) {
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    list += (i > 0 ? ", " : "") + quote_cell(names[i]);
  if (names.size() > kNamesShown) list += fmt::format(" and {} more", names.size() - kNamesShown);
  return list;
}

std::optional<size_t> find_name(const std::string& file,
                                const std::vector<std::string_view>& names,
                                std::string_view wanted) {
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end()) return std::nullopt;
  const auto number = static_cast<size_t>(found - names.begin());
  const auto again = std::find(found + 1, names.end(), wanted);
  if (again != names.end())
    refuse_equal_names(file, number, static_cast<size_t>(again - names.begin()), wanted);
  return number;
}

void refuse_equal_names(const std::string& file,
                        size_t first,
                        size_t second,
                        std::string_view name) {
  throw DataError(
      "{}: columns {} and {} (from 0) of the header are both named {}; names must be unique",
      file,
      first,
      second,
      quote_cell(name));
}

std::string problem_of_width(size_t cells, size_t width) {
  if (cells == width) return "";
  return fmt::format("has {} cells; allowed: {}, as in the first line", cells, width);
}

}  // namespace lockstep
