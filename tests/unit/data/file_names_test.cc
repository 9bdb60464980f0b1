// Catches: numbers of another width than in the pattern, files in no order, a star that crosses
// folders, a pattern that nothing matches and that is passed over.
#include "runtime/data/file_names.h"

#include <gtest/gtest.h>

#include "files.h"

namespace lockstep::data {
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

TEST(FileNames, StarsAreNoDotAtTheBeginning) {
  test::TemporaryFolder folder;
  for (const char* name : {"a.tar", "._a.tar", ".b.tar"}) folder.write(name, "x");
  const std::string dir = folder.path();
  for (const char* pattern : {"*.tar", "*a.tar", "?.tar", "*"})
    EXPECT_EQ(expand_names({pattern}, dir, "f"), Names{dir + "/a.tar"}) << pattern;
  EXPECT_EQ(expand_names({".*.tar"}, dir, "f").size(), 2u);  // asked for
}

TEST(FileNames, AnotherFormOfANameIsPointedOut) {
  test::TemporaryFolder folder;
  const std::string composed = "\xC3\x9C", decomposed = "U\xCC\x88";
  const std::filesystem::path below = folder.path() / (decomposed + "b");
  std::filesystem::create_directories(below);
  folder.write(decomposed + "-0.tar", "x");
  const std::string dir = folder.path();
  for (const std::string& pattern : {composed + "b/*.tar", composed + "-?.tar"})
    test::expect_parts(test::error_of([&] { expand_names({pattern}, dir, "f"); }, ExitCode::kData),
                       {"no file matches", "U+0055 U+0308", "U+00DC"});
}

// Folders with brackets in their names are common; glob(3) would take them for sets of characters.
TEST(FileNames, OnlyStarsAndQuestionMarksArePatterns) {
  test::TemporaryFolder folder;
  const std::filesystem::path dir = folder.path() / "data[1]*\\";
  for (const auto& [below, name] :
       {std::pair(dir, "a[0].tar"), {dir, "a0.tar"}, {folder.path() / "data1x", "b.tar"}}) {
    std::filesystem::create_directories(below);
    std::ofstream(below / name) << "x";
  }
  const std::string found = (dir / "a[0].tar").string();
  EXPECT_EQ(expand_names({"a[0].*"}, dir.string(), "f"), Names{found});
  EXPECT_EQ(expand_names({"a*.tar"}, dir.string(), "f"), (Names{(dir / "a0.tar").string(), found}));
}

TEST(FileNames, AFileAndItsCompressedCopyAreOneTooMany) {
  test::TemporaryFolder folder;
  for (const char* name : {"b_1.bin", "b_1.bin.gz", "b_2.bin"}) folder.write(name, "x");
  test::expect_parts(
      test::error_of([&] { expand_names({"b_*.bin*"}, folder.path(), "data.cifar.train"); }),
      {"data.cifar.train", "b_1.bin'", "b_1.bin.gz", "allowed: one"});
  EXPECT_EQ(expand_names({"b_*.bin"}, folder.path(), "f").size(), 2u);
}

}  // namespace
}  // namespace lockstep::data
