// Fields that are meant by flags of other programs. Catches a name that is not found, or found in a
// section that the config excludes, and a field with two meanings.

#include "runtime/config/field_search.h"

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

// "train.epochs", "execution.precision=BF16"; several with blanks between them.
std::string found(const std::string& flag, const std::string& value = "", bool nearly = false) {
  std::string text;
  const auto search = nearly ? fields_named_nearly : fields_named_by;
  for (const FieldMatch& match : search(flag, value, kMlpText))
    text += (text.empty() ? "" : " ") + match.path + (match.value.empty() ? "" : "=" + match.value);
  return text;
}

TEST(FieldSearchTest, FindsNamesPathsAndNamesOfOtherPrograms) {
  EXPECT_EQ(found("--epochs"), "train.epochs");
  EXPECT_EQ(found("--Learning-Rate"), "schedule.lr");
  EXPECT_EQ(found("batch_size"), "train.global_batch");
  EXPECT_EQ(found("--train.steps"), "train.steps");
  EXPECT_EQ(found("--eval-every"), "eval.every");
  EXPECT_EQ(found("--fp16"), "execution.precision=FP16");
  EXPECT_EQ(found("--no-shuffle"), "data.shuffle=false");
  EXPECT_EQ(found("--qqq"), "");
}

TEST(FieldSearchTest, PrefersTheConfigsOwnSections) {
  EXPECT_EQ(found("--hidden"), "model.mlp.hidden");
  EXPECT_EQ(found("--momentum"), "optimizer.sgd.momentum");
}

// A guess that the config cannot have, or whose value does not fit, misleads.
TEST(FieldSearchTest, SaysIfTheConfigExcludesTheField) {
  const std::vector<FieldMatch> matches = fields_named_by("--block_size", "8", kMlpText);
  ASSERT_FALSE(matches.empty());
  EXPECT_TRUE(matches[0].excluded);
  EXPECT_FALSE(fields_named_by("--epochs", "8", kMlpText)[0].excluded);
}

TEST(FieldSearchTest, AdaptsValues) {
  EXPECT_EQ(found("--dtype", "bfloat16"), "execution.precision=BF16");
  EXPECT_EQ(found("--fp16-allreduce"), "comm.wire_dtype=FP16");
  EXPECT_EQ(found("--warmup_ratio", "0.1"), "schedule.warmup_steps=VALUE");
  EXPECT_EQ(found("--wd", "0.1"), "optimizer.sgd.weight_decay");
  EXPECT_EQ(found("--optim", "adamw_torch"), "optimizer.adamw={}");
}

TEST(FieldSearchTest, DoesNotGuessFromDistantNames) {
  for (const char* flag : {"--project2", "--profile", "--backend", "--train_data2", "--restart"})
    EXPECT_EQ(found(flag, "x", true), "") << flag;
  EXPECT_EQ(nearest("weights", {"height"}), "");
  EXPECT_EQ(nearest("trian", {"train"}), "train");
  EXPECT_EQ(nearest("ste", {"steps"}), "");
  EXPECT_EQ(nearest("warm", {"warmup_steps"}), "warmup_steps");
  EXPECT_EQ(nearest("warm", {"warmup_steps", "warm_start"}), "");
}

TEST(FieldSearchTest, FindsSectionsThatExcludeEachOther) {
  EXPECT_EQ(found("--optimizer", "adamw"), "optimizer.adamw={}");
  EXPECT_EQ(found("--lion"), "optimizer.lion={}");
  EXPECT_EQ(found("--optimizer", "unknown"), "");
}

TEST(FieldSearchTest, FindsMisspeltNames) {
  EXPECT_EQ(found("--epoch", "", true), "train.epochs");
  EXPECT_EQ(found("--learning_rat", "", true), "schedule.lr");
  EXPECT_EQ(found("--qqq", "", true), "");
}

// A name of another program would otherwise stand for two things.
TEST(FieldSearchTest, EveryNameHasAPlainForm) {
  EXPECT_EQ(plain_flag("--Per-Device.X"), "per_device_x");
  EXPECT_EQ(plain_flag("-n"), "n");
  EXPECT_EQ(plain_flag("--"), "");
  EXPECT_EQ(nearest("stpes", {"steps", "lanes"}), "steps");
  EXPECT_EQ(nearest("zzz", {"steps", "lanes"}), "");
}

}  // namespace
}  // namespace lockstep::config
