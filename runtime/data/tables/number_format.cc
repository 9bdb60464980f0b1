#include "runtime/data/tables/number_format.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/base/text.h"
#include "runtime/data/tables/csv.h"
#include "runtime/data/tables/other_format.h"

namespace lockstep::data {
namespace {

constexpr size_t kGroup = 3;  // digits between two separators

std::string_view take_digits(std::string_view* rest) {
  size_t length = 0;
  while (length < rest->size() && (*rest)[length] >= '0' && (*rest)[length] <= '9') ++length;
  const std::string_view digits = rest->substr(0, length);
  rest->remove_prefix(length);
  return digits;
}

// Moves the digits before the fraction from *rest to *plain, without separators. Returns false if
// they are grouped otherwise than in threes.
bool take_units(std::string_view* rest, std::string_view thousands, std::string* plain) {
  const std::string_view first = take_digits(rest);
  *plain += first;
  if (thousands.empty() || !rest->starts_with(thousands)) return true;
  if (first.empty() || first.size() > kGroup || first[0] == '0') return false;
  while (rest->starts_with(thousands)) {
    rest->remove_prefix(thousands.size());
    const std::string_view group = take_digits(rest);
    if (group.size() != kGroup) return false;
    *plain += group;
  }
  return !rest->starts_with('e') && !rest->starts_with('E');  // 6,403E+02 has a decimal comma
}

constexpr size_t kMaxAffixes = 8;  // different units of one column
constexpr size_t kMaxUnitBytes = 16;
constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kMinus = "\u2212";
constexpr std::array<std::string_view, 13> kCurrencies = {
    "$", "€", "£", "¥", "₹", "₩", "₽", "₺", "₿", "₫", "₴", "₪", "¢"};
constexpr std::array<std::string_view, 25> kCurrencyWords = {
    "usd", "eur", "gbp", "chf", "jpy", "cny", "rmb", "inr", "cad", "aud", "nzd", "sek", "nok",
    "dkk", "pln", "czk", "huf", "brl", "mxn", "zar", "rub", "kr",  "zł",  "rs",  "fr"};
constexpr std::array<std::string_view, 8> kScales = {
    "k", "m", "b", "bn", "mn", "mio", "mrd", "million"};
constexpr std::array<std::string_view, 7> kMarks = {"<", ">", "~", "≤", "≥", "≈", "±"};

// A number with something before or after it: "$12", "12 kg".
struct Affixed {
  std::string before, number, after;
};

std::optional<Affixed> affixed(std::string_view cell) {
  const size_t first = cell.find_first_of(kDigits), last = cell.find_last_of(kDigits);
  if (first == std::string_view::npos) return std::nullopt;
  size_t begin = first;
  if (begin > 0 && (cell[begin - 1] == '.' || cell[begin - 1] == ',')) --begin;
  Affixed parts{.before = std::string(cell.substr(0, begin)),
                .number = std::string(cell.substr(begin, last + 1 - begin)),
                .after = std::string(trim(cell.substr(last + 1)))};
  // A sign may come before or after a currency.
  std::erase_if(parts.before, [](char c) { return c == '+' || c == '-'; });
  parts.before = std::string(trim(parts.before));
  return parts;
}

bool is_currency(std::string_view affix) {
  return lists_word(kCurrencyWords, affix.substr(0, affix.find('.'))) ||
         std::ranges::any_of(kCurrencies, [&](std::string_view sign) {
           return affix.find(sign) != std::string_view::npos;
         });
}

bool is_unit(std::string_view affix) {
  return !affix.empty() && affix.size() <= kMaxUnitBytes &&
         affix.find_first_of("-_:,;@=\"'()[]{}\\") == std::string_view::npos;
}

}  // namespace

bool parse_number(std::string_view text, const NumberFormat& format, double* number) {
  if (format.is_plain()) return parse_number(text, number);
  std::string plain;
  if (text.starts_with('+') || text.starts_with('-')) {
    plain += text[0];
    text.remove_prefix(1);
  }
  if (!take_units(&text, format.thousands, &plain)) return false;
  if (text.find('.') < text.size() && format.decimal != ".") return false;
  if (text.starts_with(format.decimal)) {
    plain += '.';
    text.remove_prefix(format.decimal.size());
  }
  plain += text;
  return parse_number(plain, number);
}

CellNotation affixed_numbers(std::span<const std::string> cells, const NumberFormat& format) {
  std::set<std::string> affixes, units, currencies;
  std::vector<std::string> numbers;
  bool money = false, percent = false, minus = false, brackets = false, plain_units = true,
       scaled = false, minus_after = false;
  for (const std::string& cell : cells) {
    const auto parts = affixed(cell);
    if (!parts) continue;
    const std::string &before = parts->before, &after = parts->after;
    const bool is_money = is_currency(before) || is_currency(after);
    const bool in_brackets = before.starts_with('(') && after.ends_with(')');
    if (!is_money && !in_brackets && !before.empty() && before != kMinus &&
        !lists_word(kMarks, before))
      continue;
    const bool ends_with_minus = before.empty() && after == "-";
    if (!is_money && !in_brackets && !after.empty() && !is_unit(after) && !ends_with_minus)
      continue;
    numbers.push_back(parts->number);
    if (before.empty() && after.empty()) continue;
    money |= is_money;
    if (is_money) currencies.insert(is_currency(before) ? before : after);
    minus_after |= ends_with_minus;
    brackets |= in_brackets;
    percent |= after == "%" || after == "‰";
    minus |= before == kMinus;
    plain_units &= before.empty();
    scaled |= lists_word(kScales, after);
    if (!after.empty() && !is_currency(after)) units.insert(after);
    for (const std::string& affix : {before, after})
      if (!affix.empty()) affixes.insert(affix);
  }
  if (affixes.empty() || affixes.size() > kMaxAffixes || numbers.size() * 10 < cells.size() * 9)
    return {};
  const bool plain =
      most(numbers, [&](const std::string& number) { return is_number(number, format); });
  const auto other = plain ? std::nullopt : other_format(numbers, format);
  if (!plain && !other) return {};
  std::string list;
  for (const std::string& affix : affixes) list += fmt::format(", '{}'", escape_controls(affix));
  CellNotation notation;
  notation.is_number = money || percent || minus || minus_after || brackets;
  notation.what = money         ? "amounts of money"
                  : percent     ? "percentages"
                  : minus       ? "numbers with the minus sign U+2212"
                  : minus_after ? "negative numbers with '-' after them"
                  : brackets    ? "negative numbers in brackets"
                  : plain_units ? "numbers with a unit"
                                : "numbers with a mark";
  notation.remedy = !money && (minus || minus_after || brackets)
                        ? "write '-' before negative numbers"
                    : currencies.size() > 1
                        ? fmt::format("convert them to one currency and delete {}", list.substr(2))
                    : units.size() > 1 || scaled
                        ? fmt::format("convert them to one unit and delete {}", list.substr(2))
                        : fmt::format("delete {} from the cells", list.substr(2));
  notation.other_decimal = other && other->decimal != format.decimal;
  if (other) notation.remedy += " and set " + settings(*other, format);
  return notation;
}

}  // namespace lockstep::data
