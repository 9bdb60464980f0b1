// Catches: a time limit that is read as another one.
#include "runtime/base/duration.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Duration, IsReadAsPeopleAndSlurmWriteIt) {
  EXPECT_EQ(parse_duration("90s"), 90);
  EXPECT_EQ(parse_duration("45m"), 2700);
  EXPECT_EQ(parse_duration("2.5h"), 9000);
  EXPECT_EQ(parse_duration("1d12h30m1s"), 131'401);
  EXPECT_EQ(parse_duration("01:02:03"), 3723);
  EXPECT_EQ(parse_duration("2-00:00:30"), 172'830);
}

TEST(Duration, NothingElseIsOne) {
  for (const char* text : {"",
                           "90",
                           "h",
                           "1m2h",
                           "1h1h",
                           "-1h",
                           "1 h",
                           "1:30",
                           "1:2:3:4",
                           "1e3s",
                           "0x10s",
                           "1.s",
                           "1234567890123s",
                           "3s "})
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  EXPECT_EQ(parse_duration(std::string(1'000'000, '1')), std::nullopt);
}

}  // namespace
}  // namespace lockstep
