#include "runtime/data/tables/cell_notation.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace lockstep::data {
namespace {

constexpr std::array<std::string_view, 12> kMonths = {
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::array<std::string_view, 7> kDays = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
constexpr std::array<std::string_view, 12> kMarks = {
    "t", "z", "am", "pm", "utc", "gmt", "cet", "cest", "est", "edt", "pst", "pdt"};
constexpr int kFirstYear = 1000, kLastYear = 2999;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The word begins with a short name, such as "sep" for "Sept" and "September".
template <typename List>
bool is_name(const List& names, const std::string& word) {
  return word.size() >= 3 &&
         std::ranges::find(names, std::string_view(word).substr(0, 3)) != names.end();
}

// The parts of a cell: its groups of digits, and what else was seen.
struct Parts {
  std::vector<std::string_view> digits;
  int months = 0, colons = 0, separators = 0;
  char separator = 0;  // between the first two groups of digits
  bool allowed = true;
};

Parts parts_of(std::string_view cell) {
  Parts parts;
  for (size_t i = 0; i < cell.size();) {
    const size_t begin = i;
    if (is_digit(cell[i])) {
      while (i < cell.size() && is_digit(cell[i])) ++i;
      parts.digits.push_back(cell.substr(begin, i - begin));
    } else if (is_letter(cell[i])) {
      std::string word;
      for (; i < cell.size() && is_letter(cell[i]); ++i) word += static_cast<char>(cell[i] | 0x20);
      const bool month = is_name(kMonths, word);
      parts.months += month;
      parts.allowed &=
          month || is_name(kDays, word) || std::ranges::find(kMarks, word) != kMarks.end();
    } else {
      parts.allowed &= std::string_view("-/.:, +").find(cell[i]) != std::string_view::npos;
      parts.colons += cell[i] == ':';
      if (parts.digits.size() == 1 && parts.separator == 0) parts.separator = cell[i];
      ++i;
    }
  }
  return parts;
}

bool is_year(std::string_view digits) {
  if (digits.size() != 4) return false;
  const int year = std::stoi(std::string(digits));
  return year >= kFirstYear && year <= kLastYear;
}

bool is_short(std::string_view digits) {
  return digits.size() <= 2 && std::stoi(std::string(digits)) <= 59;
}

}  // namespace

bool is_date_or_time(std::string_view cell) {
  constexpr size_t kLongest = 40;
  if (cell.size() < 4 || cell.size() > kLongest) return false;
  const Parts parts = parts_of(cell);
  const auto& digits = parts.digits;
  if (!parts.allowed || digits.empty()) return false;
  if (parts.months == 1) return true;  // "Jan 5", "5-Jan-2024", "Jan 2024"
  // "12:30", "12:30:05.123456"
  if (parts.separator == ':')
    return digits.size() >= 2 && digits[0].size() <= 3 && digits[1].size() == 2 &&
           is_short(digits[1]);
  if (parts.separator != '-' && parts.separator != '/' && parts.separator != '.') {
    return parts.separator == 0 && digits.size() == 2 && digits[0].size() == 8 &&
           cell.find_first_of("Tt") == 8;  // 20240131T123005
  }
  if (digits.size() == 2)  // 2024-01
    return (is_year(digits[0]) && digits[1].size() == 2 && is_short(digits[1])) ||
           (is_year(digits[1]) && is_short(digits[0]) && parts.separator != '.');
  if (digits.size() != 3 && parts.colons == 0) return false;
  const bool year_first = is_year(digits[0]) && is_short(digits[1]) && is_short(digits[2]);
  const bool year_last =
      is_short(digits[0]) && is_short(digits[1]) && (is_year(digits[2]) || digits[2].size() == 2);
  return year_first || year_last;
}

}  // namespace lockstep::data
