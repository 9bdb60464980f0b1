// --set path=value. Catches a value that lands in another field, a list that is appended to, a
// oneof that is not switched, and mistakes that pass in silence.

#include <variant>

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

TEST(Overrides, ScalarsOfEveryType) {
  const RunConfig config = parse_good(kGptText,
                                      {"name=other",
                                       "seed=18446744073709551615",
                                       "train.steps=7",
                                       "schedule.lr=2.5e-4",
                                       "comm.bucket_mib=0.125",
                                       "model.gpt.bias=false",
                                       "model.gpt.activation=silu",
                                       "schedule.kind=Cosine",
                                       "data.text.train=a b=c,\"d\".txt"});
  EXPECT_EQ(config.name, "other");
  EXPECT_EQ(config.seed, 18446744073709551615u);
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.schedule.lr, 2.5e-4f);
  EXPECT_EQ(config.comm.bucket_mib, 0.125);
  EXPECT_FALSE(std::get<GptConfig>(config.model).bias);
  EXPECT_EQ(std::get<GptConfig>(config.model).activation, Activation::kSilu);
  EXPECT_EQ(config.schedule.kind, ScheduleConfig::Kind::kCosine);
  EXPECT_EQ(std::get<TextConfig>(config.data.source).train, "a b=c,\"d\".txt");
}

TEST(Overrides, TheLastOneCounts) {
  EXPECT_EQ(parse_good(kMlpText, {"train.steps=7", "train.steps=8"}).train.steps, 8);
}

TEST(Overrides, ListsAreReplaced) {
  const RunConfig ints = parse_good(kMlpText, {"model.mlp.hidden=5,6,7"});
  EXPECT_EQ(std::get<MlpConfig>(ints.model).hidden, (std::vector<int64_t>{5, 6, 7}));
  const RunConfig none = parse_good(kMlpText, {"model.mlp.hidden="});
  EXPECT_TRUE(std::get<MlpConfig>(none.model).hidden.empty());
  const RunConfig texts =
      parse_good(kMlpText, {"data.table.ignore=a b,c", "data.table.missing=,-"});
  EXPECT_EQ(std::get<TableConfig>(texts.data.source).ignore,
            (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(std::get<TableConfig>(texts.data.source).missing, (std::vector<std::string>{"", "-"}));
  const RunConfig nameless = parse_good(kMlpText, {"data.table.ignore=\"\""});
  EXPECT_EQ(std::get<TableConfig>(nameless.data.source).ignore, std::vector<std::string>{""});
  const RunConfig cleared = parse_good(kMlpText, {"data.table.missing=-", "data.table.missing="});
  EXPECT_EQ(std::get<TableConfig>(cleared.data.source).missing, TableConfig{}.missing);
}

// People copy a field with its quotes and brackets from a config.
TEST(Overrides, QuotesAndBracketsOfAConfigAreLeftOut) {
  const RunConfig config =
      parse_good(kMlpText, {"name=\"ab\"", "data.dir='/d e'", "model.mlp.hidden=[5, 6]"});
  EXPECT_EQ(config.name, "ab");
  EXPECT_EQ(config.data.dir, "/d e");
  EXPECT_EQ(std::get<MlpConfig>(config.model).hidden, (std::vector<int64_t>{5, 6}));
  const RunConfig texts = parse_good(kMlpText, {"data.table.ignore=[\"a b\", 'c']"});
  EXPECT_EQ(std::get<TableConfig>(texts.data.source).ignore,
            (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(parse_good(kMlpText, {"data.dir=\"a\"b"}).data.dir, "\"a\"b");
}

TEST(Overrides, AMemberOfAOneofTakesItsPlace) {
  const RunConfig data = parse_good(kMlpText, {"data.synthetic.samples=64", "data.dir=/d"});
  EXPECT_EQ(std::get<SyntheticConfig>(data.data.source).samples, 64);
  EXPECT_EQ(data.data.dir, "/d");
  const RunConfig adam = parse_good(kMlpText, {"optimizer.adam.beta1=0.5"});
  EXPECT_EQ(std::get<AdamConfig>(adam.optimizer.kind).beta1, 0.5f);
  const RunConfig adamw = parse_good(kMlpText, {"optimizer.adamw.beta1=0.5"});
  EXPECT_TRUE(std::holds_alternative<AdamwConfig>(adamw.optimizer.kind));
  const RunConfig model = parse_good(kMlpText, {"model.gpt.width=48", "data.tokens.train=t.bin"});
  EXPECT_EQ(std::get<GptConfig>(model.model).width, 48);
}

TEST(Overrides, ASectionCanBeReset) {
  const RunConfig same = parse_good(kMlpText, {"optimizer.sgd={}"});
  EXPECT_EQ(std::get<SgdConfig>(same.optimizer.kind), SgdConfig{});
  const RunConfig other = parse_good(kMlpText, {"optimizer.adamw="});
  EXPECT_EQ(std::get<AdamwConfig>(other.optimizer.kind), AdamwConfig{});
  // The only way to unset a field from the command line: gamma belongs to STEP.
  const std::string step = kMlpText + "schedule { kind: STEP milestones: 5 gamma: 0.5 lr: 0.1 }";
  EXPECT_EQ(parse_good(step, {"schedule={}"}).schedule, ScheduleConfig{});
}

TEST(Overrides, SectionsThatTheTextLeavesOutAreCreated) {
  EXPECT_EQ(parse_good("",
                       {"model.mlp.hidden=4",
                        "data.table.train=a",
                        "data.table.target=b",
                        "train.epochs=0.5",
                        "optimizer.sgd.momentum=0"})
                .train.epochs,
            0.5);
}

struct OverrideCase {
  const char* label;
  const char* assignment;
  std::vector<std::string> parts;  // of the message
};

void PrintTo(const OverrideCase& bad, std::ostream* out) { *out << bad.label; }

class OverrideRefusal : public testing::TestWithParam<OverrideCase> {};

TEST_P(OverrideRefusal, NamesPathValueAndAllowed) {
  const std::string message = refusal(kMlpText, {GetParam().assignment});
  expect_contains(message, GetParam().parts);
  expect_contains(message, {"allowed: "});
}

const OverrideCase kCases[] = {
    {"no_value", "train.steps", {"--set 'train.steps'", "path.to.field=value"}},
    {"no_path", "=5", {"--set '=5'", "path.to.field=value"}},
    {"empty", "", {"--set ''", "path.to.field=value"}},
    {"unknown_section",
     "trian.steps=5",
     {"--set 'trian.steps'", "'trian' in the config", "did you mean 'train'?", "name, seed"}},
    {"unknown_field",
     "train.step=5",
     {"--set 'train.step'", "'step' in train", "did you mean 'steps'?", "global_batch, lanes"}},
    {"beginning_of_a_name",
     "schedule.warmup=5",
     {"'warmup' in schedule", "did you mean 'warmup_steps'?"}},
    {"empty_element", "train..steps=5", {"unknown field '' in train", "global_batch"}},
    {"trailing_dot", "train.=5", {"unknown field '' in train", "global_batch"}},
    {"name_of_others",
     "train.gradient_accumulation_steps=4",
     {"did you mean 'lanes'? A rank computes its lanes one after the other"}},
    {"name_of_others_in_another_section",
     "train.max_grad_norm=1",
     {"did you mean 'optimizer.clip_norm'?"}},
    {"name_of_others_with_a_difference",
     "schedule.warmup_ratio=0.1",
     {"did you mean 'warmup_steps'? It is counted in steps"}},
    {"space", "train.steps =5", {"unknown field 'steps ' in train", "did you mean 'steps'?"}},
    {"below_a_scalar", "train.steps.x=5", {"'steps' has no fields below it", "a whole number"}},
    {"below_a_list", "model.mlp.hidden.0=5", {"'hidden' has no fields below it"}},
    {"section", "model.mlp=5", {"model.mlp: value is '5'", "{} (its defaults)", "hidden, activ"}},
    {"word_for_integer", "train.steps=abc", {"train.steps: value is 'abc'", "a whole number"}},
    {"fraction_for_integer", "train.steps=1.5", {"value is '1.5'", "a whole number"}},
    {"exponent_for_integer", "train.steps=1e3", {"value is '1e3'", "a whole number"}},
    {"nothing_for_integer", "train.steps=", {"train.steps: value is ''", "a whole number"}},
    {"space_before_integer", "train.steps= 5", {"value is ' 5'", "a whole number"}},
    {"too_large_for_integer",
     "train.steps=9223372036854775808",
     {"value is '9223372036854775808'", "(int64)"}},
    {"negative_seed", "seed=-1", {"seed: value is '-1'", "a whole number >= 0 (uint64)"}},
    {"word_for_number", "schedule.lr=fast", {"schedule.lr: value is 'fast'", "a number (float)"}},
    {"unit_for_number", "comm.bucket_mib=5MiB", {"value is '5MiB'", "a number (double)"}},
    {"yes_for_bool", "data.shuffle=yes", {"data.shuffle: value is 'yes'", "true or false"}},
    {"number_for_bool", "data.shuffle=1", {"data.shuffle: value is '1'", "true or false"}},
    {"enum",
     "schedule.kind=cosin",
     {"schedule.kind: value is 'cosin'", "did you mean 'COSINE'?", "CONSTANT, LINEAR, COSINE"}},
    {"enum_number", "schedule.kind=1", {"schedule.kind: value is '1'", "one of CONSTANT"}},
    {"list_element", "model.mlp.hidden=5,x", {"model.mlp.hidden: value is 'x'", "a whole number"}},
    {"list_gap", "model.mlp.hidden=5,,6", {"model.mlp.hidden: value is ''", "a whole number"}},
    {"line_break", "train.steps=1\n2", {"value is '1\\n2'", "a whole number"}},
};

INSTANTIATE_TEST_SUITE_P(All, OverrideRefusal, testing::ValuesIn(kCases), [](const auto& info) {
  return std::string(info.param.label);
});

}  // namespace
}  // namespace lockstep::config
