#include "runtime/config/limits.h"

#include "runtime/config/names.h"
#include "runtime/config/schema.h"

namespace lockstep::config {
namespace {

// A template, so that the message prints a float 0.1f as 0.1. A NaN compares false, and an infinite
// bound is open, which excludes infinities.
template <typename Real>
void check_real(std::string_view field, Real value, const RealLimit& limit) {
  const bool above = limit.low_open ? value > limit.low : value >= limit.low;
  const bool below = limit.high_open ? value < limit.high : value <= limit.high;
  if (!(above && below)) refuse_value(field, value, describe(limit));
}

}  // namespace

IntegerLimit integer_limit_of(std::string_view path) {
  const google::protobuf::FieldDescriptor* field = find_field(path);
  LOCKSTEP_CHECK(field != nullptr, "no field {}", path);
  return integer_limit(*field);
}

std::string describe(const IntegerLimit& limit) {
  return fmt::format("{}..{}", limit.low, limit.high);
}

std::string describe(const RealLimit& limit) {
  if (limit.high != kNoBound) {
    return fmt::format("a number in {}{}, {}{}",
                       limit.low_open ? '(' : '[',
                       limit.low,
                       limit.high,
                       limit.high_open ? ')' : ']');
  }
  if (limit.low == -kNoBound) return "a finite number";
  return fmt::format("a finite number {} {}", limit.low_open ? ">" : ">=", limit.low);
}

void check_limit(std::string_view field, int64_t value, const IntegerLimit& limit) {
  if (value < limit.low || value > limit.high) refuse_value(field, value, describe(limit));
}

void check_limit(std::string_view field, float value, const RealLimit& limit) {
  check_real(field, value, limit);
}

void check_limit(std::string_view field, double value, const RealLimit& limit) {
  check_real(field, value, limit);
}

}  // namespace lockstep::config
