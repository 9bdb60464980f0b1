#pragma once
// Limits of single fields, and the uniform message for a value outside its limit.

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::config {

// low <= value <= high.
struct IntegerLimit {
  int64_t low;
  int64_t high;
};

inline constexpr double kNoBound = std::numeric_limits<double>::infinity();

// Finite numbers from low to high. An open end excludes the bound itself. An infinite bound must be
// open.
struct RealLimit {
  double low = -kNoBound;
  double high = kNoBound;
  bool low_open = true;
  bool high_open = true;
};

// The limit of the integer field at `path`: integer_limit_of("train.steps").
IntegerLimit integer_limit_of(std::string_view path);

// A limit in words: "1..1000", "a number in [0, 1)", "a finite number > 0".
std::string describe(const IntegerLimit& limit);
std::string describe(const RealLimit& limit);

// Throws "FIELD: value is VALUE; allowed: ALLOWED".
template <typename Value>
[[noreturn]] void refuse_value(std::string_view field,
                               const Value& value,
                               std::string_view allowed) {
  throw ConfigError("{}: value is {}; allowed: {}", field, value, allowed);
}
// The same with a format string and its arguments.
template <typename Value, typename First, typename... Rest>
[[noreturn]] void refuse_value(std::string_view field,
                               const Value& value,
                               fmt::format_string<First, Rest...> allowed,
                               First&& first,
                               Rest&&... rest) {
  refuse_value(field,
               value,
               std::string_view(
                   fmt::format(allowed, std::forward<First>(first), std::forward<Rest>(rest)...)));
}

// Throws ConfigError unless the value is within the limit. NaN and infinities are outside every
// limit.
void check_limit(std::string_view field, int64_t value, const IntegerLimit& limit);
void check_limit(std::string_view field, float value, const RealLimit& limit);
void check_limit(std::string_view field, double value, const RealLimit& limit);

}  // namespace lockstep::config
