#include "runtime/data/tables/column_names.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"

namespace lockstep::data {
namespace {

constexpr size_t kNamesShown = 8;
constexpr size_t kMaxQuotedBytes = 40;  // of a cell in a message
// Spaces that look like an ordinary one, and marks that cannot be seen, in UTF-8.
constexpr std::array<std::string_view, 6> kSpaces = {
    "\t", "\u00A0", "\u2007", "\u2009", "\u202F", "\u3000"};
constexpr std::array<std::string_view, 4> kUnseen = {"\uFEFF", "\u200B", "\u200E", "\u200F"};

// Replaces each of `parts` in *text.
template <typename Parts>
void replace_all(std::string* text, const Parts& parts, std::string_view by) {
  for (const std::string_view part : parts)
    for (size_t at = 0; (at = text->find(part, at)) != std::string::npos; at += by.size())
      text->replace(at, part.size(), by);
}

[[noreturn]] void refuse_equal_names(const std::string& file,
                                     size_t first,
                                     size_t second,
                                     std::string_view first_name,
                                     std::string_view second_name) {
  if (first_name == second_name)
    throw DataError(
        "{}: columns {} and {} (from 0) of the header are both named {}; names must be unique",
        file,
        first,
        second,
        quote_cell(first_name));
  throw DataError(
      "{}: columns {} and {} (from 0) of the header have names that look the same, {} and {}; "
      "names must be unique",
      file,
      first,
      second,
      spell_out(first_name),
      spell_out(second_name));
}

}  // namespace

std::string quote_cell(std::string_view cell) {
  if (cell.size() <= kMaxQuotedBytes) return fmt::format("'{}'", escape_controls(cell));
  size_t end = kMaxQuotedBytes;
  while (end > 0 && (static_cast<unsigned char>(cell[end]) & 0xC0) == 0x80) --end;  // in a letter
  return fmt::format("'{}...'", escape_controls(cell.substr(0, end)));
}

std::string column_key(std::string_view name) {
  std::string key = normal_name(name);
  replace_all(&key, kSpaces, " ");
  replace_all(&key, kUnseen, "");
  const size_t begin = std::min(key.find_first_not_of(' '), key.size());
  return key.substr(begin, key.find_last_not_of(' ') + 1 - begin);
}

bool is_id_name(std::string_view key) {
  constexpr std::array<std::string_view, 22> kNames = {
      "id",       "index",     "idx",        "row",        "rowid",  "rowname",
      "rownames", "rownum",    "rownumber",  "row number", "record", "no",
      "no.",      "nr",        "nr.",        "number",     "s.no",   "s.no.",
      "sr. no.",  "serial no", "serial no.", "#"};
  if (key.empty() || key.starts_with("Unnamed: ") || has_suffix(key, "uuid")) return true;
  // "customer_id", "row id", "PassengerId", but not "paid".
  const size_t before = key.size() - 2;
  if (key.size() > 2 && has_suffix(key, "id") &&
      (std::string_view("_- .").find(key[before - 1]) != std::string_view::npos ||
       key[before] == 'I'))
    return true;
  std::string plain(key);
  std::ranges::replace(plain, '_', ' ');
  return std::ranges::any_of(kNames, [&](std::string_view name) {
    return plain.size() == name.size() && has_suffix(plain, name);
  });
}

std::string list_names(const std::vector<std::string_view>& names) {
  return named_first(names.size(), kNamesShown, [&](size_t i) { return quote_cell(names[i]); });
}

std::optional<size_t> find_name(const std::string& file,
                                const std::vector<std::string_view>& names,
                                std::string_view wanted) {
  const std::string key = column_key(wanted);
  std::optional<size_t> found;
  for (size_t i = 0; i < names.size(); ++i) {
    if (column_key(names[i]) != key) continue;
    if (found) refuse_equal_names(file, *found, i, names[*found], names[i]);
    found = i;
  }
  return found;
}

void check_unique(const std::string& file, const std::vector<std::string>& names) {
  std::unordered_map<std::string, size_t> columns;
  for (size_t i = 0; i < names.size(); ++i) {
    std::string key = column_key(names[i]);
    if (key.empty()) continue;
    const auto [first, is_new] = columns.emplace(std::move(key), i);
    if (!is_new) refuse_equal_names(file, first->second, i, names[first->second], names[i]);
  }
}

std::string problem_of_width(size_t cells, size_t width) {
  if (cells == width) return "";
  return fmt::format("has {} cells; allowed: {}, as in the first line", cells, width);
}

}  // namespace lockstep::data
