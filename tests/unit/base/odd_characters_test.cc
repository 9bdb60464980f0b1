// Characters that look like ASCII. Catches one that is taken for another, and a remedy that cannot
// be followed.
#include "runtime/base/odd_characters.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::string first_in(std::string_view text) {
  return describe_odd_character(text, find_non_ascii(text));
}

TEST(OddCharacters, AreNamedWithWhatToWriteInstead) {
  EXPECT_EQ(first_in("a\u00a0b"), "U+00A0 is a no-break space; write a plain space instead");
  EXPECT_EQ(first_in("x \u201cy"), "'\u201c' (U+201C) is a curly quote; write \" instead");
  EXPECT_EQ(first_in("\u2019"), "'\u2019' (U+2019) is a curly quote; write ' instead");
  EXPECT_EQ(first_in("lr: \u20131"), "'\u2013' (U+2013) is a long dash; write - instead");
  EXPECT_EQ(first_in("\u200b"), "U+200B is an invisible character; remove it");
  EXPECT_EQ(first_in("\ufeff"), "U+FEFF is a byte order mark, which is invisible; remove it");
  EXPECT_EQ(first_in("a\uff1a"), "'\uff1a' (U+FF1A) is a full-width character; write : instead");
  EXPECT_EQ(first_in("st\u0435ps"),
            "'\u0435' (U+0435) is a Cyrillic letter that looks like e; write e instead");
  EXPECT_EQ(first_in("\u039dame"),
            "'\u039d' (U+039D) is a Greek letter that looks like N; write N instead");
  EXPECT_EQ(first_in("\u00fc"),
            "'\u00fc' (U+00FC) is not ASCII; other characters are allowed in quotes only");
  EXPECT_EQ(first_in("caf\xE9"), "the byte 0xE9 is not UTF-8; save the file as UTF-8");
}

TEST(OddCharacters, PlainTextHasNone) {
  EXPECT_EQ(find_non_ascii("a \"b\" - \x7f\n"), std::string_view::npos);
  EXPECT_EQ(find_non_ascii("\u00fcb\u00fc", 2), 3u);
  EXPECT_TRUE(is_odd_quote("\u201ea", 0));
  EXPECT_FALSE(is_odd_quote("\"", 0));
  EXPECT_TRUE(is_odd_blank("\u3000", 0));
  EXPECT_FALSE(is_odd_blank(" ", 0));
}

}  // namespace
}  // namespace lockstep
