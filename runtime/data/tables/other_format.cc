#include "runtime/data/tables/other_format.h"

#include <fmt/core.h>

#include <array>
#include <vector>

#include "runtime/base/text.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kNoBreakSpace = "\u00A0", kNarrowSpace = "\u202F", kThinSpace = "\u2009";
constexpr std::array<std::string_view, 9> kThousands = {
    ",", ".", " ", kNoBreakSpace, kNarrowSpace, kThinSpace, "'", "\u2019", "_"};
constexpr std::array<std::string_view, 2> kDecimals = {".", ","};

}  // namespace

bool is_number(std::string_view cell, const NumberFormat& format) {
  double number = 0;
  return parse_number(cell, format, &number);
}

std::string_view trim(std::string_view text) {
  for (const std::string_view space : {std::string_view(" "), kNoBreakSpace, kNarrowSpace}) {
    while (text.starts_with(space)) text.remove_prefix(space.size());
    while (text.ends_with(space)) text.remove_suffix(space.size());
  }
  return text;
}

std::string in_config(std::string_view mark) {
  if (mark == kNoBreakSpace) return R"("\u00A0")";
  if (mark == kNarrowSpace) return R"("\u202F")";
  if (mark == kThinSpace) return R"("\u2009")";
  return fmt::format("\"{}\"", mark);
}

std::string settings(const NumberFormat& wanted, const NumberFormat& format) {
  std::string text;
  if (wanted.decimal != format.decimal)
    text = fmt::format("data.table.decimal: {}", in_config(wanted.decimal));
  if (wanted.thousands != format.thousands)
    append_item(
        text, fmt::format("data.table.thousands: {}", in_config(wanted.thousands)), " and ");
  return text;
}

std::optional<NumberFormat> other_format(std::span<const std::string> cells,
                                         const NumberFormat& format) {
  std::vector<NumberFormat> formats;
  const auto add = [&](std::string_view decimal, std::string_view thousands) {
    if (decimal != thousands) formats.push_back({std::string(decimal), std::string(thousands)});
  };
  for (const std::string_view thousands : kThousands) add(format.decimal, thousands);
  for (const std::string_view decimal : kDecimals) add(decimal, format.thousands);
  for (const std::string_view decimal : kDecimals) add(decimal, "");
  for (const std::string_view decimal : kDecimals)
    for (const std::string_view thousands : kThousands) add(decimal, thousands);
  const auto numbers_in = [&](const NumberFormat& of) {
    return std::ranges::count_if(cells, [&](const auto& cell) { return is_number(cell, of); });
  };
  const auto now = numbers_in(format);
  for (const NumberFormat& wanted : formats) {
    const auto numbers = numbers_in(wanted);
    if (numbers > now && static_cast<size_t>(numbers) * 10 >= cells.size() * 9) return wanted;
  }
  return std::nullopt;
}

}  // namespace lockstep::data
