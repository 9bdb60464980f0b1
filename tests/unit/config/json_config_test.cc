// Configs in JSON. Catches a field that lands elsewhere than in protobuf text format, mistakes that
// pass, and messages without place, field or choice.

#include <variant>

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

const std::string kJson = R"({
  "model": {"mlp": {"hidden": [32, 16]}},
  "data": {"table": {"train": "a.csv", "target": "y"}},
  "train": {"steps": 100},
  "optimizer": {"sgd": {"momentum": 0.9}}
}
)";

// kJson with the member "train" replaced by `members`.
std::string with(const std::string& members) {
  std::string text = kJson;
  const std::string train = R"("train": {"steps": 100})";
  return text.replace(text.find(train), train.size(), members);
}

TEST(JsonConfig, IsTheSameAsInTextFormat) {
  EXPECT_EQ(parse_good(kJson), parse_good(kMlpText));
  EXPECT_EQ(parse_good("\xEF\xBB\xBF \r\n" + kJson), parse_good(kMlpText));
  EXPECT_EQ(parse_good(kJson, {"train.steps=7"}), parse_good(kMlpText, {"train.steps=7"}));
}

TEST(JsonConfig, FollowsTheMappingOfProtobuf) {
  const RunConfig config = parse_good(with(R"(
    "seed": "18446744073709551615", "name": "a\u002db", "train": {"globalBatch": 1.6e1, "log_every": 4.0,
      "epochs": null, "steps": 7}, "schedule": {"kind": "COSINE", "lr": "2.5e-4"},
    "output": {"timeline": true}, "eval": null)"));
  EXPECT_EQ(config.seed, 18446744073709551615u);
  EXPECT_EQ(config.name, "a-b");
  EXPECT_EQ(config.train.global_batch, 16);
  EXPECT_EQ(config.train.log_every, 4);
  EXPECT_EQ(config.train.steps, 7);
  EXPECT_EQ(config.schedule.kind, ScheduleConfig::Kind::kCosine);
  EXPECT_EQ(config.schedule.lr, 2.5e-4f);
  EXPECT_TRUE(config.output.timeline);
}

TEST(JsonConfig, ListsOfSections) {
  const std::string groups =
      R"("train": {"steps": 3, "groups": [{"match": "bias", "lr_scale": 0.5}, {"match": "x"}]})";
  const std::string text =
      R"(train { steps: 3 groups: [{match: "bias" lr_scale: 0.5}, {match: "x"}] })";
  std::string plain = kMlpText;
  const std::string train = "train { steps: 100 }";
  plain.replace(plain.find(train), train.size(), text);
  EXPECT_EQ(parse_config(with(groups), "a", {}), parse_config(plain, "b", {}));
}

struct JsonCase {
  const char* label;
  std::string members;
  std::vector<std::string> parts;  // of the message
};

void PrintTo(const JsonCase& bad, std::ostream* out) { *out << bad.label; }

class JsonRefusal : public testing::TestWithParam<JsonCase> {};

TEST_P(JsonRefusal, NamesPlaceFieldAndAllowed) {
  const std::string message = refusal(with(GetParam().members));
  EXPECT_TRUE(message.starts_with("run.textproto:")) << message;
  expect_contains(message, GetParam().parts);
}

const JsonCase kCases[] = {
    {"unknown_field",
     R"("train": {"stepz": 1})",
     {":4:13: unknown field 'stepz' in train; did you mean 'steps'?"}},
    {"unknown_in_camel_case", R"("train": {"globalBtch": 1})", {"did you mean 'global_batch'?"}},
    {"unknown_section", R"("trian": {})", {":4:3: unknown field 'trian' in the config"}},
    {"text",
     R"("train": {"steps": "abc"})",
     {":4:22: train.steps: value is 'abc'; allowed: a whole"}},
    {"fraction", R"("train": {"steps": 3.5})", {"train.steps: value is '3.5'; allowed: a whole"}},
    {"huge", R"("train": {"steps": 1e30})", {"train.steps: value is '1e30'"}},
    {"section", R"("train": {"steps": {}})", {"train.steps: value is a section; allowed: a whole"}},
    {"no_section", R"("train": 5)", {":4:12: train: value is '5'; allowed: a section { ... } of"}},
    {"no_list",
     R"("train": {"groups": 3})",
     {"train.groups: value is '3'; allowed: a list in brackets, [...]"}},
    {"enum_in_lower_case",
     R"("schedule": {"kind": "cosine"})",
     {":4:24: schedule.kind: value is 'cosine'; did you mean 'COSINE'?"}},
    {"enum_number",
     R"("schedule": {"kind": 2})",
     {"schedule.kind: value is '2'", "in double quotes"}},
    {"python",
     R"("output": {"timeline": True})",
     {"value is 'True'; did you mean true? allowed: true or false"}},
    {"bool_in_quotes",
     R"("output": {"timeline": "true"})",
     {"allowed: true or false, not in quotes"}},
    {"number_for_text", R"("name": 5)", {"name: value is '5'; allowed: text in double quotes"}},
    {"twice", R"("seed": 1, "seed": 2)", {":4:14: seed is given twice"}},
    {"twice_in_two_spellings",
     R"("train": {"global_batch": 1, "globalBatch": 2})",
     {"train.global_batch is given twice"}},
    {"two_of_a_choice",
     R"("optimizer": {"sgd": {}, "adam": {}})",
     {"optimizer.adam and sgd are both"}},
    {"comment", "// steps\n\"train\": {}", {":4:3: JSON has no comments", "begin with #"}},
    {"hash", "\"train\": { # steps\n}", {":4:14: JSON has no comments"}},
    {"comma_at_the_end", R"("train": {"steps": 3,})", {":4:23: a comma before }; remove it"}},
    {"no_comma", R"("train": {"steps": 3 "lanes": 4})", {"expected a comma or }, found '\"'"}},
    {"single_quotes", "'train': {}", {":4:3: names and text are in double quotes"}},
    {"no_quotes", "train: {}", {":4:3: expected a name in double quotes, found 't'"}},
    {"curly_quotes",
     "\u201ctrain\u201d: {}",
     {":4:3: '\u201c' (U+201C) is a curly quote; write \""}},
    {"hard_blank", "\"train\":\u00a0{}", {":4:11: U+00A0 is a no-break space"}},
    {"look_alike",
     "\"tr\u0430in\": {}",
     {"unknown field", "'\u0430' (U+0430) is a Cyrillic letter"}},
    {"open_quotes", "\"name\": \"a\nb\"", {":4:11: the quotes do not end on this line"}},
    {"bad_escape", R"("name": "a\qb")", {":4:11: invalid string: forbidden character"}},
    {"levels",
     R"("train": {"steps": )" + std::string(100000, '['),
     {"train.steps: value is a list"}},
};

INSTANTIATE_TEST_SUITE_P(All, JsonRefusal, testing::ValuesIn(kCases), [](const auto& info) {
  return std::string(info.param.label);
});

TEST(JsonConfig, TextAfterItsEndIsRefused) {
  expect_contains(refusal(kJson + "{}"), {":7:1: has a second object"});
  expect_contains(refusal(kJson + "x"), {":7:1: has text after the end"});
  expect_contains(refusal("{"), {":1:2: expected a name in double quotes, found the end"});
}

}  // namespace
}  // namespace lockstep::config
