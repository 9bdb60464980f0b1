#include "runtime/data/tables/cell_notation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/data/tables/number_format.h"
#include "runtime/data/tables/other_format.h"

namespace lockstep::data {
namespace {

using Cells = std::span<const std::string>;

constexpr size_t kMaxCells = 1000;
constexpr size_t kMinNumbers = 3;  // different numbers beside words for a missing value
constexpr size_t kMinHashDigits = 8;
// Other words for a missing value than those of data.table.missing, in lower case.
constexpr std::array<std::string_view, 33> kMissingWords = {
    "",        "?",       "-",     "--",     "---",       "–",     "—",
    ".",       "..",      "*",     "na",     "n.a.",      "n.a",   "n/a",
    "nan",     "nd",      "n/d",   "none",   "null",      "nil",   "(null)",
    "missing", "unknown", "unk",   "\\n",    "undefined", "empty", "not available",
    "#value!", "#div/0!", "#ref!", "#name?", "#num!"};

CellNotation other_numbers(Cells cells, const NumberFormat& format) {
  const auto found = other_format(cells, format);
  if (!found) return {};
  CellNotation notation;
  notation.is_number = true;
  notation.remedy = "set " + settings(*found, format);
  notation.other_decimal = found->decimal != format.decimal;
  const bool new_decimal = notation.other_decimal;
  const bool new_thousands = found->thousands != format.thousands && !found->thousands.empty();
  const std::string decimal = found->decimal == "," ? "a decimal comma" : "a decimal point";
  if (new_decimal && new_thousands)
    notation.what = fmt::format(
        "numbers with {} and thousands separated by {}", decimal, in_config(found->thousands));
  else if (new_decimal)
    notation.what = "numbers with " + decimal;
  else
    notation.what =
        fmt::format("numbers with thousands separated by {}", in_config(found->thousands));
  // 7,500 may be either.
  const NumberFormat fraction{found->thousands, ""};
  if (!new_decimal && (found->thousands == "," || found->thousands == ".") &&
      format.thousands.empty() &&
      std::ranges::all_of(cells, [&](const auto& cell) { return is_number(cell, fraction); }))
    notation.remedy +=
        fmt::format(" (or {}, if it begins the fraction)", settings(fraction, format));
  return notation;
}

CellNotation dates(Cells cells, const NumberFormat& /*format*/) {
  if (!most(cells, is_date_or_time)) return {};
  return {"dates or times", "convert them to numbers, such as days or seconds", false};
}

// Whether a cell is a number, if need be one that float32 does not hold.
bool is_any_number(const std::string& cell, const NumberFormat& format) {
  double number = 0;
  const char* end = cell.data() + cell.size();
  return is_number(cell, format) ||
         (!cell.empty() && std::from_chars(cell.data(), end, number).ptr == end);
}

CellNotation numbers_and_missing(Cells cells, const NumberFormat& format) {
  std::vector<std::string> words;
  for (const std::string& cell : cells)
    if (!is_number(cell, format)) words.push_back(cell);
  const auto is_missing = [](std::string_view w) { return lists_word(kMissingWords, w); };
  const bool known = std::ranges::all_of(words, is_missing);
  if (std::ranges::any_of(words, [&](const auto& w) { return is_any_number(w, format); }))
    return {};
  if (words.empty() || cells.size() < words.size() + kMinNumbers) return {};
  if (!known &&
      (words.size() > 2 || !most(cells, [&](const auto& cell) { return is_number(cell, format); })))
    return {};
  std::string list;
  for (const std::string& word : words) list += fmt::format(", \"{}\"", escape_controls(word));
  return {.what = fmt::format("numbers, except {}", list.substr(2)),
          .remedy = missing_remedy({""}, words),
          .is_number = known,
          .words = words};
}

CellNotation beyond_float(Cells cells, const NumberFormat& format) {
  const auto any = [&](const std::string& cell) { return is_any_number(cell, format); };
  const auto plain = [&](const std::string& cell) { return is_number(cell, format); };
  if (!most(cells, any) || std::ranges::count_if(cells, any) == std::ranges::count_if(cells, plain))
    return {};
  return {.what = "numbers beyond float32, infinite ones included",
          .remedy = "scale them or remove these rows",
          .is_number = true};
}

// Numbers with marks around them that the reader of tables does not remove: no-break spaces, tabs,
// single quotes, Excel's ="1".
CellNotation enclosed_numbers(Cells cells, const NumberFormat& format) {
  constexpr std::string_view kMarks = "\t '\"=`";
  if (std::ranges::all_of(cells, [&](const auto& c) { return is_number(c, format); })) return {};
  const bool any = most(cells, [&](std::string_view cell) {
    cell.remove_prefix(std::min(cell.find_first_not_of(kMarks), cell.size()));
    cell = trim(cell.substr(0, cell.find_last_not_of(kMarks) + 1));
    return is_number(cell, format);
  });
  if (!any) return {};
  return {"numbers with white space or quotes around them", "delete what is around them", true};
}

// Two numbers, such as a range or a size: "10-20", "3/4", "52.5, 13.4".
bool is_pair(std::string_view cell, const NumberFormat& format) {
  const size_t mark = cell.find_first_of("-/:;,x ", 1);
  if (mark == std::string_view::npos) return false;
  return is_number(trim(cell.substr(0, mark)), format) &&
         is_number(trim(cell.substr(mark + 1)), format);
}

bool is_hexadecimal(std::string_view cell) {
  return (cell.starts_with("0x") || cell.starts_with("0X")) && cell.size() > 2 &&
         cell.find_first_not_of("0123456789abcdefABCDEF", 2) == std::string_view::npos;
}

// The words that have a letter.
int64_t words_in(std::string_view cell) {
  const std::vector<std::string> words = words_of(std::string(cell));
  return std::ranges::count_if(words, [](const std::string& word) {
    return std::ranges::any_of(
        word, [](unsigned char c) { return c >= 0x80 || (c | 0x20U) - 'a' < 26U; });
  });
}

// One word with a digit, or an address.
bool is_id(std::string_view cell) {
  if (cell.empty() || cell.find(' ') != std::string_view::npos) return false;
  const bool hash = cell.size() >= kMinHashDigits &&
                    cell.find_first_not_of("0123456789abcdefABCDEF-") == std::string_view::npos;
  return hash || cell.find_first_of("0123456789@/\\_") != std::string_view::npos;
}

// What the cells are if each row has its own value.
CellNotation other_kinds(Cells cells, const NumberFormat& format) {
  if (most(cells, is_hexadecimal))
    return {"hexadecimal numbers", "convert them to decimal ones", true};
  if (most(cells, [](std::string_view c) { return c.starts_with('[') || c.starts_with('{'); }))
    return {"lists or JSON", "write each value into a column of its own", false};
  if (most(cells, [&](std::string_view cell) { return is_pair(cell, format); }))
    return {"pairs of numbers", "write each number into a column of its own", false};
  if (most(cells, is_id)) return {"ids, from which nothing can be learned", "", false};
  if (most(cells, [](std::string_view cell) { return words_in(cell) >= 3; }))
    return {"texts, which data.labelled_text reads", "", false};
  return {};
}

}  // namespace

CellNotation notation_of(Cells cells, const NumberFormat& format) {
  cells = cells.first(std::min(kMaxCells, cells.size()));
  for (const auto find : {other_numbers,
                          dates,
                          numbers_and_missing,
                          beyond_float,
                          enclosed_numbers,
                          affixed_numbers}) {
    CellNotation notation = find(cells, format);
    if (!notation.what.empty()) return notation;
  }
  return other_kinds(cells, format);
}

std::string missing_remedy(std::vector<std::string> kept, const std::vector<std::string>& words) {
  std::string list;
  kept.insert(kept.end(), words.begin(), words.end());
  for (const std::string& word : kept) list += fmt::format(", \"{}\"", escape_controls(word));
  return fmt::format("if these mark a missing value, set data.table.missing: [{}]", list.substr(2));
}

std::string number_remedy(const std::string& cell, const NumberFormat& format, bool evaluation) {
  const CellNotation notation = notation_of(std::span(&cell, 1), format);
  if (!notation.is_number) return "";
  return fmt::format("; if the file has {}, {}",
                     notation.what,
                     evaluation ? "write them as in the training file" : notation.remedy);
}

}  // namespace lockstep::data
