// Catches: expressions whose search takes for ever, or the whole stack.
#include "runtime/config/pattern.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::test {
namespace {

TEST(Pattern, SearchesInPolynomialTime) {
  const std::string name = "model.layers.0.self_attn.qkv_proj.weight";
  EXPECT_FALSE(config::Pattern("f", "([a-z_]+[.]?)+[0-9]x").found_in(name));
  EXPECT_FALSE(config::Pattern("f", "(.*)*(.*)*(.*)*(.*)*x$").found_in(name));
  EXPECT_TRUE(config::Pattern("f", "(q|qkv)_proj\\.(weight|bias)$").found_in(name));
}

TEST(Pattern, RefusesWhatIsTooLongOrNone) {
  std::string nested;
  for (int i = 0; i < 300; ++i) nested = "(e|" + nested + ")";
  EXPECT_THROW(config::Pattern("f", nested), ConfigError);
  EXPECT_THROW(config::Pattern("f", "(a"), ConfigError);
  EXPECT_THROW(config::Pattern("f", "(a)\\1"), ConfigError);
}

TEST(Pattern, TellsWhyInWordsOfItsOwn) {
  const auto why = [](const char* text) -> std::string {
    try {
      const config::Pattern pattern("f", text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(why("((a{1000}){1000}){1000}").find("its repetitions make it too large"),
            std::string::npos)
      << why("((a{1000}){1000}){1000}");
  for (const char* text :
       {"(a", "a)", "[a", "a{2,1}", "a{x}", "*a", "[b-a]", "[[:x:]]", "a\\", "(?<a)"}) {
    const std::string told = why(text);
    EXPECT_NE(told.find("a regular expression in ECMAScript syntax ("), std::string::npos) << text;
    for (const char* library : {"regex", "GLIBCXX", "NFA", "automaton", "std::"})
      EXPECT_EQ(told.find(library), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace lockstep::test
