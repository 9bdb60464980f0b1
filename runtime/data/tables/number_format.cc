#include "runtime/data/tables/number_format.h"

#include "runtime/data/tables/csv.h"

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

}  // namespace lockstep::data
