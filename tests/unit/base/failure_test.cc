// Catches: texts of libraries that reach the user, and an exit code that says something else.
#include "runtime/base/failure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <vector>

#include "runtime/base/json.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep {
namespace {

template <typename Action>
std::string told_of(const Action& action) {
  try {
    action();
  } catch (const std::exception& error) {
    const Failure failure = failure_of(error);
    return fmt::format("{} {}", static_cast<int>(failure.code), failure.message);
  }
  return "";
}

TEST(Failure, IsToldInASentenceOfOurOwn) {
  namespace fs = std::filesystem;
  EXPECT_EQ(told_of([] { throw DataError("field f: no"); }), "3 field f: no");
  EXPECT_EQ(told_of([] { throw std::bad_alloc(); }), "5 out of memory");
  EXPECT_EQ(told_of([] { std::string().resize(std::string::npos); }), "5 out of memory");
  const testing::TemporaryFolder folder;
  const std::string absent = (folder.path() / "absent").string();
  EXPECT_EQ(told_of([&] { (void)fs::file_size(absent + "/f"); }),
            "4 cannot access '" + absent + "/f': No such file or directory");
  EXPECT_EQ(told_of([&] { fs::rename(absent + "/a", absent + "/b"); }),
            fmt::format("4 cannot access '{0}/a' or '{0}/b': No such file or directory", absent));
  EXPECT_EQ(told_of([] { Json::parse("{").at("x"); }).substr(0, 46),
            "70 JSON was not as expected: parse error at li");
}

TEST(Failure, NamesTheTypeAloneOfWhatNobodyExpects) {
  const std::string text = told_of([] { (void)std::stoi("x"); });
  EXPECT_NE(text.find("std::invalid_argument"), std::string::npos) << text;
  EXPECT_EQ(text.find("stoi"), std::string::npos) << text;
  for (const std::string& told : {told_of([] { (void)std::vector<int>().at(1); }),
                                  told_of([] { (void)std::string("a").substr(2); }),
                                  told_of([] { std::regex("("); })}) {
    EXPECT_EQ(told.substr(0, 52), "70 internal error: unhandled exception of type std::") << told;
    EXPECT_EQ(told.find("_M_"), std::string::npos) << told;
  }
}

}  // namespace
}  // namespace lockstep
