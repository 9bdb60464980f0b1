// Catches: numbers of another width than in the pattern, files in no order, a star that crosses
// folders, a pattern that nothing matches and that is passed over.
#include "runtime/data/file_names.h"

#include <gtest/gtest.h>

#include "files.h"

namespace lockstep {
namespace {

using Names = std::vector<std::string>;

TEST(FileNames, BracesAreNumbersUpwards) {
  EXPECT_EQ(expand_names({"a-{08..11}.tar", "b"}, "", "f"),
            (Names{"a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar", "b"}));
  EXPECT_EQ(expand_names({"{0..1}{5..5}"}, "", "f"), (Names{"05", "15"}));
  for (const char* bad : {"{", "}", "{1}", "{2..1}", "{a..b}", "}{", "{1..9999999999}", "{..}"})
    test::expect_parts(test::error_of([&] { expand_names({bad}, "", "data.f"); }, ExitCode::kUsage),
                       {"data.f", "allowed"});
}

TEST(FileNames, StarsAreTheFilesThatMatchInOrder) {
  test::TemporaryFolder folder;
  for (const char* name : {"b_2.bin", "b_1.bin.gz", "b_10.bin", "c.bin"}) folder.write(name, "x");
  const std::string dir = folder.path();
  EXPECT_EQ(expand_names({"b_*.bin*"}, dir, "f"),
            (Names{dir + "/b_1.bin.gz", dir + "/b_10.bin", dir + "/b_2.bin"}));
  EXPECT_EQ(expand_names({"?.bin", "plain"}, dir, "f"), (Names{dir + "/c.bin", "plain"}));
  EXPECT_EQ(expand_names({dir + "/c.*"}, "/nowhere", "f"), (Names{dir + "/c.bin"}));
  test::expect_parts(
      test::error_of([&] { expand_names({"d*"}, dir, "data.cifar.train"); }, ExitCode::kData),
      {"data.cifar.train", "no file matches", "d*"});
}

}  // namespace
}  // namespace lockstep
