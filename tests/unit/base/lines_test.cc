// Lines: every line end, the byte order mark, the last line. Catches a reader that keeps "\r" or
// loses a line, and one that is quadratic in files of old Macs.
#include "runtime/base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  Lines reader(text);
  for (std::string_view line; reader.next(&line);) {
    lines.emplace_back(line);
    EXPECT_EQ(reader.number(), static_cast<int64_t>(lines.size()));
  }
  return lines;
}

using Expected = std::vector<std::string>;

TEST(Lines, EndWithAnyLineEnd) {
  const Expected expected = {"a", "", "b"};
  for (const char* text : {"a\n\nb\n",
                           "a\r\n\r\nb\r\n",
                           "a\r\rb\r",
                           "a\n\nb",
                           "a\r\n\r\nb",
                           "a\r\rb",
                           "a\n\r\nb\r",
                           "a\r\r\nb\n"})
    EXPECT_EQ(lines_of(text), expected) << testing::PrintToString(text);
}

TEST(Lines, SkipTheByteOrderMarkOnlyAtTheBeginning) {
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"
                     "a\n\xEF\xBB\xBF"
                     "b"),
            (Expected{"a",
                      "\xEF\xBB\xBF"
                      "b"}));
  EXPECT_EQ(lines_of("\xEF\xBB\xBF"), Expected{});
}

TEST(Lines, MayBeEmpty) {
  EXPECT_EQ(lines_of(""), Expected{});
  EXPECT_EQ(lines_of("\n"), Expected{""});
  EXPECT_EQ(lines_of("\r\n"), Expected{""});
  EXPECT_EQ(lines_of("\r"), Expected{""});
}

TEST(Lines, AreLinearInFilesOfOldMacs) {
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "ab\r";
  EXPECT_EQ(lines_of(text).size(), 1'000'000u);
}

}  // namespace
}  // namespace lockstep
