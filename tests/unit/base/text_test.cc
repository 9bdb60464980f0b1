// Catches: names from files that move a terminal's cursor or make two lines of one; lists and
// numbers that read wrongly in messages; words that a shell would split.
#include "runtime/base/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(EscapeControls, LeavesNoneAndKeepsOtherText) {
  EXPECT_EQ(escape_controls("a\x1b[2Jb\x7f"), "a\\x1b[2Jb\\x7f");
  EXPECT_EQ(escape_controls("two\nlines\tand\r"), "two\\nlines\\tand\\x0d");
  EXPECT_EQ(escape_controls(std::string(1, '\0')), "\\x00");
  EXPECT_EQ(escape_controls("\xC2\x9b[31m"), "\\x9b[31m");  // a control character of two bytes
  EXPECT_EQ(escape_controls("Gr\xC3\xB6\xC3\x9F"
                            "e 'x'"),
            "Gr\xC3\xB6\xC3\x9F"
            "e 'x'");
}

TEST(EscapeControls, LinesOfOurOwnStay) {
  EXPECT_EQ(escape_controls_in_lines("a\n\tb\x1b"), "a\n\tb\\x1b");
}

TEST(Quotes, StayOnOneLineAndEnd) {
  EXPECT_EQ(in_quotes("a'b\\\n\t\x01"), "'a\\'b\\\\\\n\\t\\x01'");
  EXPECT_EQ(in_quotes(std::string(99, 'a') + "\xC3\xA9"), "'" + std::string(99, 'a') + "...'");
  EXPECT_EQ(quote_name("a\xC3\n"), "'a\\xc3\\x0a'");
  EXPECT_EQ(quote_name(std::string(201, 'a')), "'" + std::string(200, 'a') + "...'");
}

TEST(ShellWord, IsOneWordWithItsText) {
  EXPECT_EQ(shell_word("train.lanes=8"), "train.lanes=8");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
}

TEST(Lists, ReadAsSentences) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(size_t{1}, "step"), "1 step");
  EXPECT_STREQ(plural(1.0), "");
  EXPECT_STREQ(plural(1.5), "s");
  const std::vector<std::string> items = {"a", "b", "c"};
  EXPECT_EQ(joined(items), "a, b, c");
  EXPECT_EQ(joined(items, " or "), "a or b or c");
  EXPECT_EQ(joined_with("and", items), "a, b and c");
  EXPECT_EQ(joined_with("or", std::vector<std::string>{"a", "b"}), "a or b");
  EXPECT_EQ(joined_with("or", std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(joined_with("or", {}), "");
  const auto name = [&](size_t i) { return items.at(i); };
  EXPECT_EQ(named_first(3, 3, name), "a, b, c");
  EXPECT_EQ(named_first(3, 2, name), "a, b and 1 more");
  std::string list;
  append_item(list, "a", "; ");
  append_item(list, "b", "; ");
  EXPECT_EQ(list, "a; b");
}

TEST(ParseAs, TakesTheWholeTextOnly) {
  EXPECT_EQ(parse_as<int>("-12"), -12);
  EXPECT_EQ(parse_as<int>("017", 8), 15);
  EXPECT_EQ(parse_as<double>("1e3"), 1000);
  for (const char* text : {"", " 1", "1 ", "+1", "1x", "99999999999"})
    EXPECT_EQ(parse_as<int>(text), std::nullopt) << text;
  EXPECT_EQ(parse_as<unsigned>("-1"), std::nullopt);
}

TEST(Trimmed, LosesBlanksAtBothEnds) {
  EXPECT_EQ(trimmed(" \ta b\t "), "a b");
  EXPECT_EQ(trimmed(" \t", " "), "\t");
  EXPECT_EQ(trimmed("  "), "");
}

}  // namespace
}  // namespace lockstep
