// Catches: names from files that move a terminal's cursor or make two lines of one.
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

}  // namespace
}  // namespace lockstep
