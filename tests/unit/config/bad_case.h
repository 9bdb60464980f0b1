#pragma once
// Inputs that must be refused in the promised form, as parameters of tests.

#include <ostream>

#include "tests/unit/config/fixtures.h"

namespace lockstep {

// `overrides` make a good config bad; the message must be "FIELD: ...VALUE...; allowed: ALLOWED".
struct BadCase {
  const char* label;
  const std::string& base;
  std::vector<std::string> overrides;
  const char* field;
  const char* value;
  const char* allowed;
};

inline void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.label; }

inline void expect_refused(const BadCase& bad) {
  const std::string message = refusal(bad.base, bad.overrides);
  EXPECT_TRUE(message.starts_with(std::string(bad.field) + ": ")) << message;
  const size_t allowed = message.find("; allowed");
  ASSERT_NE(allowed, std::string::npos) << message;
  EXPECT_NE(message.substr(0, allowed).find(bad.value), std::string::npos) << message;
  EXPECT_NE(message.substr(allowed).find(bad.allowed), std::string::npos) << message;
}

inline std::string label_of(const testing::TestParamInfo<BadCase>& info) {
  return info.param.label;
}

}  // namespace lockstep
