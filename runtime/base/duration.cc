#include "runtime/base/duration.h"

#include <array>
#include <regex>

#include "runtime/base/error.h"

namespace lockstep {

std::optional<double> parse_duration(const std::string& text) {
  const std::string number = R"(([0-9]{1,9}(?:\.[0-9]{1,9})?))", integer = "([0-9]{1,9})";
  const auto with_unit = [&](const char* unit) { return "(?:" + number + unit + ")?"; };
  const std::regex units(with_unit("d") + with_unit("h") + with_unit("m") + with_unit("s")),
      colons("(?:" + integer + "-)?" + integer + ":" + integer + ":" + integer);
  constexpr std::array<double, 4> kSeconds = {86'400, 3'600, 60, 1};
  std::smatch parts;
  constexpr size_t kMaxCharacters = 100;
  if (text.empty() || text.size() > kMaxCharacters ||
      (!std::regex_match(text, parts, units) && !std::regex_match(text, parts, colons)))
    return std::nullopt;
  double seconds = 0;
  for (size_t i = 0; i < kSeconds.size(); ++i)
    if (parts[i + 1].matched) seconds += std::stod(parts[i + 1]) * kSeconds[i];
  return seconds;
}

double require_duration(const char* flag, const std::string& text) {
  const std::optional<double> seconds = parse_duration(text);
  if (!seconds || *seconds <= 0)
    throw ConfigError(
        "{}: value is '{}'; allowed: 90m, 2.5h, 1d12h or HOURS:MINUTES:SECONDS, above 0",
        flag,
        text);
  return *seconds;
}

}  // namespace lockstep
