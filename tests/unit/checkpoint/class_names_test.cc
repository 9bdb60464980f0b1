// Catches: names of classes that a checkpoint loses or mixes up, and one without names, as older
// versions wrote them, that is refused or has some.
#include "runtime/checkpoint/format/class_names.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::checkpoint {
namespace {

using Names = std::vector<std::string>;

Names kept(const Names& names) {
  CheckpointState state;
  keep_class_names(names, state);
  return kept_class_names(state, "checkpoint");
}

TEST(ClassNames, AreKeptInTheirOrder) {
  const Names names = {"neg", "a \"quoted\" one", "", "Käse"};
  EXPECT_EQ(kept(names), names);
}

TEST(ClassNames, OfACheckpointWithoutThem) {
  CheckpointState state;
  keep_class_names({}, state);
  EXPECT_TRUE(state.extra.empty());
  EXPECT_EQ(kept_class_names(state, "checkpoint"), Names());
}

TEST(ClassNames, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(kept({"a\xff"}), Names({"a\xef\xbf\xbd"}));
}

TEST(ClassNames, DamagedOnesAreRefused) {
  CheckpointState state;
  keep_class_names({"a"}, state);
  for (const char* damaged : {"", "[1]", "[\"a\""}) {
    for (auto& [key, text] : state.extra) text = damaged;
    EXPECT_THROW(kept_class_names(state, "checkpoint"), CheckpointError) << damaged;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
