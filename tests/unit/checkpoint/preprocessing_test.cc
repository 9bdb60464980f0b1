// Catches: preprocessing that a checkpoint loses or changes, and a checkpoint without it, as older
// versions wrote them, that is refused or has some.
#include "runtime/checkpoint/format/preprocessing.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"

namespace lockstep::checkpoint {
namespace {

TEST(KeptPreprocessing, IsTheSame) {
  CheckpointState state;
  const Json fields = Json::parse(R"({"image_mean":[0.1],"columns":[{"name":"\"K\u00e4se\""}]})");
  keep_preprocessing(fields, state);
  EXPECT_EQ(kept_preprocessing(state, "checkpoint"), fields);
}

TEST(KeptPreprocessing, OfACheckpointWithoutIt) {
  EXPECT_EQ(kept_preprocessing(CheckpointState(), "checkpoint"), std::nullopt);
}

TEST(KeptPreprocessing, BytesThatAreNotUtf8AreReplaced) {
  CheckpointState state;
  keep_preprocessing(Json::object({{"a", "b\xff"}}), state);
  EXPECT_EQ(kept_preprocessing(state, "checkpoint")->at("a").get<std::string>(), "b\xef\xbf\xbd");
}

TEST(KeptPreprocessing, DamagedOneIsRefused) {
  CheckpointState state;
  keep_preprocessing(Json::object(), state);
  for (auto& [key, text] : state.extra) text = "{";
  EXPECT_THROW(kept_preprocessing(state, "checkpoint"), CheckpointError);
}

}  // namespace
}  // namespace lockstep::checkpoint
