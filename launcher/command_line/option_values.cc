#include "launcher/command_line/option_values.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <optional>

#include "runtime/base/text.h"
#include "runtime/config/field_search.h"

namespace lockstep::launcher {
namespace {

template <typename Number>
std::optional<Number> parse_all(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return parse_as<Number>(text);
}

// "64KiB", "64k" and "64kB" as 65536.
std::optional<int64_t> parse_bytes(const std::string& text) {
  const size_t digits = text.find_first_not_of("0123456789.");
  const std::optional<double> number = parse_all<double>(text.substr(0, digits));
  if (!number) return std::nullopt;
  std::string unit = digits == std::string::npos ? "" : text.substr(digits);
  for (char& c : unit) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (unit.ends_with('b')) unit.pop_back();
  if (unit.ends_with('i') && unit.size() == 2) unit.pop_back();
  constexpr std::string_view kUnits = "kmgtpe";
  const size_t power = unit.empty() ? 0 : kUnits.find(unit) + 1;  // npos + 1 is 0
  if (unit.size() > 1 || (power == 0 && !unit.empty())) return std::nullopt;
  const double bytes = *number * std::exp2(10.0 * static_cast<double>(power));
  if (bytes != std::floor(bytes) || bytes > 0x1p62) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

enum class Type { kSwitch, kWhole, kUnsigned, kReal, kText };

Type type_of(const OptionSpec& option) {
  if (option.rules.with_units) return Type::kWhole;  // as the library sees it
  return std::visit(
      [](auto* target) {
        using Target = std::decay_t<decltype(*target)>;
        if constexpr (std::is_same_v<Target, bool>) return Type::kSwitch;
        if constexpr (std::is_same_v<Target, uint64_t>) return Type::kUnsigned;
        if constexpr (std::is_same_v<Target, double>) return Type::kReal;
        if constexpr (std::is_same_v<Target, std::string> ||
                      std::is_same_v<Target, std::vector<std::string>>)
          return Type::kText;
        return Type::kWhole;
      },
      option.target);
}

bool is_narrow(const OptionSpec& option) {
  return std::holds_alternative<int*>(option.target) ||
         std::holds_alternative<std::vector<int32_t>*>(option.target);
}

struct WholeRange {
  int64_t low, high;
};

WholeRange whole_range(const OptionSpec& option) {
  WholeRange range{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()};
  if (is_narrow(option))
    range = {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
  if (const auto* bounds = std::get_if<WholeNumbers>(&option.rules.allowed))
    range = {std::max(range.low, bounds->low), std::min(range.high, bounds->high)};
  if (const auto* bound = std::get_if<AtLeast>(&option.rules.allowed))
    range.low = std::max(range.low, bound->minimum);
  return range;
}

// "1e3" and "3.0" are whole numbers that are written as others are not.
std::string whole_hint(const std::string& text) {
  const std::optional<double> real = parse_all<double>(text);
  if (parse_all<int64_t>(text)) return "";
  if (!real || *real != std::floor(*real) || std::abs(*real) > 0x1p53) return "";
  return fmt::format(" did you mean {:.0f}?", *real);
}

// The word that an option's `also` translates, or one that is similar.
std::string word_hint(const OptionSpec& option, const OneOf& allowed, const std::string& text) {
  for (const std::string& other : words_of(option.rules.also))
    if (other.starts_with(config::plain_flag(text) + "="))
      return fmt::format(" did you mean '{}'?", other.substr(other.find('=') + 1));
  if (text.size() < 4) return "";  // tpu is not a misspelt cpu
  const std::string near = config::nearest(text, allowed.words);
  return near.empty() ? "" : fmt::format(" did you mean '{}'?", near);
}

std::string refusal(const OptionSpec& option, const std::string& text, const std::string& hint) {
  return fmt::format("value is '{}';{} allowed: {}", text, hint, allowed_in_words(option));
}

// A whole number, perhaps too large.
bool is_digits(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::string whole_problem(const OptionSpec& option, std::string& text) {
  const std::optional<int64_t> value =
      option.rules.with_units ? parse_bytes(text) : parse_all<int64_t>(text);
  const WholeRange range = whole_range(option);
  if (!value && is_digits(text))
    return refusal(option, text, "") + fmt::format(", at most {}", range.high);
  if (!value) return refusal(option, text, option.rules.with_units ? "" : whole_hint(text));
  if (*value < range.low || *value > range.high) return refusal(option, text, "");
  text = std::to_string(*value);
  return "";
}

}  // namespace

std::string allowed_in_words(const OptionSpec& option) {
  if (const auto* words = std::get_if<OneOf>(&option.rules.allowed))
    return joined(words->words, ", ");
  if (const auto* real = std::get_if<Between>(&option.rules.allowed))
    return fmt::format("a number, {} to {}", real->low, real->high);
  const WholeRange range = whole_range(option);
  switch (type_of(option)) {
    case Type::kSwitch: return "no value";
    case Type::kUnsigned: return "a whole number, 0 or more";
    case Type::kReal: return "a number";
    case Type::kText: return option.name == "--set" ? "path.to.field=value" : "a text";
    case Type::kWhole: break;
  }
  if (option.rules.with_units)
    return fmt::format("bytes, such as 64KiB or 1MiB, {} to {}", range.low, range.high);
  if (std::holds_alternative<WholeNumbers>(option.rules.allowed))
    return fmt::format("a whole number, {} to {}", range.low, range.high);
  if (std::holds_alternative<AtLeast>(option.rules.allowed))
    return fmt::format("a whole number, {} or more", range.low);
  return "a whole number";
}

std::string allowed_in_help(const OptionSpec& option) {
  if (const auto* words = std::get_if<OneOf>(&option.rules.allowed))
    return "{" + joined(words->words, ",") + "}";
  if (const auto* real = std::get_if<Between>(&option.rules.allowed))
    return fmt::format("{}..{}", real->low, real->high);
  if (const auto* bounds = std::get_if<WholeNumbers>(&option.rules.allowed))
    return fmt::format("{}..{}", bounds->low, bounds->high);
  if (const auto* bound = std::get_if<AtLeast>(&option.rules.allowed))
    return fmt::format(">={}", bound->minimum);
  return "";
}

std::string value_problem(const OptionSpec& option, std::string& text) {
  if (const auto* words = std::get_if<OneOf>(&option.rules.allowed)) {
    const bool known = std::ranges::find(words->words, text) != words->words.end();
    return known ? "" : refusal(option, text, word_hint(option, *words, text));
  }
  switch (type_of(option)) {
    case Type::kWhole: return whole_problem(option, text);
    case Type::kUnsigned:
      if (const auto value = parse_all<uint64_t>(text)) {
        text = std::to_string(*value);
        return "";
      }
      return refusal(option, text, whole_hint(text)) +
             (is_digits(text) ? fmt::format(", at most {}", std::numeric_limits<uint64_t>::max())
                              : "");
    case Type::kReal: {
      const std::optional<double> value = parse_all<double>(text);
      const auto* bounds = std::get_if<Between>(&option.rules.allowed);
      const bool inside = value && std::isfinite(*value) &&
                          (bounds == nullptr || (*value >= bounds->low && *value <= bounds->high));
      return inside ? "" : refusal(option, text, "");
    }
    default: return "";
  }
}

}  // namespace lockstep::launcher
