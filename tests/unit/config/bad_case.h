#pragma once
// Inputs that must be refused in the promised form, as parameters of tests.

#include <functional>
#include <ostream>
#include <type_traits>

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {

// What a message must list as allowed: a text, or a function that returns it. The function is
// called when the test runs, because static initialisation may come before that of the schema.
class Allowed {
 public:
  Allowed(const char* text) : text_([text] { return std::string(text); }) {}
  template <typename Function>
  requires std::is_invocable_r_v<std::string, Function> Allowed(Function function)
      : text_(function) {}

  std::string text() const { return text_(); }

 private:
  std::function<std::string()> text_;
};

// `overrides` make a good config bad; the message must be "FIELD: ...VALUE...; allowed: ALLOWED".
struct BadCase {
  const char* label;
  const std::string& base;
  std::vector<std::string> overrides;
  const char* field;
  const char* value;
  Allowed allowed;
};

inline void PrintTo(const BadCase& bad, std::ostream* out) { *out << bad.label; }

inline void expect_refused(const BadCase& bad) {
  const std::string message = refusal(bad.base, bad.overrides);
  EXPECT_TRUE(message.starts_with(std::string(bad.field) + ": ")) << message;
  const size_t allowed = message.find("; allowed");
  ASSERT_NE(allowed, std::string::npos) << message;
  EXPECT_NE(message.substr(0, allowed).find(bad.value), std::string::npos) << message;
  ASSERT_NE(bad.allowed.text(), "");
  EXPECT_NE(message.substr(allowed).find(bad.allowed.text()), std::string::npos) << message;
}

inline std::string label_of(const testing::TestParamInfo<BadCase>& info) {
  return info.param.label;
}

}  // namespace lockstep::config
