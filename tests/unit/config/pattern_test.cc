// Catches: expressions whose search takes for ever, or the whole stack.
#include "runtime/config/pattern.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::test {
namespace {

TEST(Pattern, SearchesInPolynomialTime) {
  const std::string name = "model.layers.0.self_attn.qkv_proj.weight";
  EXPECT_FALSE(Pattern("f", "([a-z_]+[.]?)+[0-9]x").found_in(name));
  EXPECT_FALSE(Pattern("f", "(.*)*(.*)*(.*)*(.*)*x$").found_in(name));
  EXPECT_TRUE(Pattern("f", "(q|qkv)_proj\\.(weight|bias)$").found_in(name));
}

TEST(Pattern, RefusesWhatIsTooLongOrNone) {
  std::string nested;
  for (int i = 0; i < 300; ++i) nested = "(e|" + nested + ")";
  EXPECT_THROW(Pattern("f", nested), ConfigError);
  EXPECT_THROW(Pattern("f", "(a"), ConfigError);
  EXPECT_THROW(Pattern("f", "(a)\\1"), ConfigError);
}

}  // namespace
}  // namespace lockstep::test
