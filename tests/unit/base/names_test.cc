// Names of files and classes. Catches a hidden file that is taken as data, a suffix in capitals
// that is not recognised, and two names that look the same but are compared by their bytes.
#include "runtime/base/names.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

constexpr char kComposed[] =
    "\xC3\x9C"
    "bung";  // U+00DC
constexpr char kDecomposed[] =
    "U\xCC\x88"
    "bung";  // U+0055 U+0308

TEST(Names, AreHiddenIfAPartBeginsWithADot) {
  for (const char* path : {".DS_Store",
                           "._0.jpg",
                           "a/.ipynb_checkpoints/0.jpg",
                           "./._a",
                           ".a/",
                           "__MACOSX/a.jpg",
                           "a/@eaDir/b.jpg",
                           "lost+found",
                           "a/__pycache__",
                           "PaxHeaders.12/a.jpg"})
    EXPECT_TRUE(is_hidden(path)) << path;
  for (const char* path : {"a.jpg", "./a.jpg", "../a", ".", "a/..", "", "a/b", "lost", "a__MACOSX"})
    EXPECT_FALSE(is_hidden(path)) << path;
}

TEST(Names, HaveSuffixesInAnyCase) {
  EXPECT_TRUE(has_suffix("A.JPG", ".jpg"));
  EXPECT_TRUE(has_suffix("a.jpg", ".JPG"));
  EXPECT_FALSE(has_suffix("jpg", ".jpg"));
  EXPECT_FALSE(has_suffix("a.jpeg", ".jpg"));
}

TEST(Names, AreFoldedForPeople) {
  EXPECT_EQ(folded_name(kDecomposed),
            folded_name("\xC3\xBC"
                        "BUNG"));
  EXPECT_EQ(folded_name(" \tCat \xC2\xA0"), "cat");
  EXPECT_EQ(folded_name("a\xE2\x80\x8B"), "a");  // a blank of no width
  EXPECT_EQ(folded_name("two words"), "two words");
  EXPECT_EQ(folded_name("\xFF"), "\xFF");  // no UTF-8
}

TEST(Names, AreComparedInOneForm) {
  EXPECT_EQ(normal_name(kDecomposed), kComposed);
  EXPECT_EQ(normal_name(kComposed), kComposed);
  EXPECT_EQ(normal_name("\xFF"
                        "a"),
            "\xFF"
            "a");
  EXPECT_TRUE(differ_only_in_form(kComposed, kDecomposed));
  EXPECT_FALSE(differ_only_in_form(kComposed, kComposed));
  EXPECT_FALSE(differ_only_in_form(kComposed, "Ubung"));
}

TEST(Names, AreSpelledOut) {
  EXPECT_EQ(spell_out(kComposed), fmt::format("'{}' (U+00DC)", kComposed));
  EXPECT_EQ(spell_out(kDecomposed), fmt::format("'{}' (U+0055 U+0308)", kDecomposed));
  EXPECT_EQ(spell_out("plain"), "'plain'");
}

TEST(Names, FindAPathThatLooksTheSame) {
  const auto folder = std::filesystem::path(testing::TempDir()) / fmt::format("names_{}", getpid());
  std::filesystem::create_directory(folder);
  const std::string there = (folder / kDecomposed).string();
  std::ofstream(there) << "x";
  EXPECT_EQ(same_looking_path((folder / kComposed).string()), there);
  EXPECT_EQ(same_looking_path((folder / "other").string()), "");
  EXPECT_EQ(same_looking_path((folder / "none" / kComposed).string()), "");
  std::filesystem::create_directory(folder / "in");
  std::filesystem::rename(there, folder / "in" / kDecomposed);
  std::filesystem::create_directory(there);  // a folder of the path looks the same
  EXPECT_EQ(same_looking_path((folder / kComposed / "x" / "y").string()), there);
  EXPECT_EQ(look_alike_hint((folder / "in" / kComposed).string()).find("; but 'U"), 0u);
  EXPECT_EQ(look_alike_hint((folder / "in" / kDecomposed).string()), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace lockstep
