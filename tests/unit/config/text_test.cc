// Errors in the text itself. Catches messages without place, field or choice, and inputs that would
// exhaust the stack or the memory.

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

struct TextCase {
  const char* label;
  std::string text;
  std::vector<std::string> parts;  // of the message
};

void PrintTo(const TextCase& bad, std::ostream* out) { *out << bad.label; }

class TextRefusal : public testing::TestWithParam<TextCase> {};

TEST_P(TextRefusal, NamesPlaceFieldAndAllowed) {
  const std::string message = refusal(GetParam().text);
  EXPECT_TRUE(message.starts_with("run.textproto:")) << message;
  expect_contains(message, GetParam().parts);
}

const TextCase kCases[] = {
    {"unknown_section",
     "seed: 1\n  modle {}\n",
     {":2:3: ",
      "unknown field 'modle' in the config",
      "did you mean 'model'?",
      "allowed: name, seed, model, data, train"}},
    {"unknown_field",
     "model { gpt {\n  widht: 3 } }",
     {":2:3: ", "'widht' in model.gpt", "did you mean 'width'?", "allowed: layers, heads, width"}},
    {"unknown_field_of_adamw",
     "optimizer { adamw { beta3: 1 } }",
     {"'beta3' in optimizer.adamw", "allowed: beta1, beta2, epsilon"}},
    {"field_in_the_wrong_section",
     "optimizer { lr: 1 }",
     {"'lr' in optimizer", "did you mean 'schedule.lr'?", "allowed: sgd, adam, adamw"}},
    {"nothing_near", "qqqqqqqq: 1", {"'qqqqqqqq' in the config; allowed: name, seed"}},
    {"unknown_enum",
     "schedule {\n\tkind: COSIN }",
     {":2:8: schedule.kind: ", "'COSIN'", "did you mean 'COSINE'?", "CONSTANT, LINEAR, COSINE"}},
    {"enum_at_the_end_of_a_line",
     "# COSIN\nschedule {\n  kind: COSIN\n\n  lr: 1 }",
     {":3:9: schedule.kind: ", "'COSIN'"}},
    {"enum_in_lower_case",
     "comm { order: fast }",
     {"comm.order: ", "'fast'", "did you mean 'FAST'?", "allowed: one of TREE, FAST"}},
    {"enum_number", "comm { order: 7 }", {"comm.order: ", "'7'", "allowed: one of TREE, FAST"}},
    {"enum_of_two_sections",
     "model { mlp { activation: RELUU } }",
     {"activation: ", "'RELUU'", "did you mean 'RELU'?"}},
    {"enum_by_its_name_elsewhere",
     "model { gpt { activation: gelu_new } }",
     {"activation: ", "'gelu_new'", "did you mean 'GELU_TANH'?"}},
    {"text_for_integer",
     "train { steps: \"abc\" }",
     {":1:16: train.steps: ", "\"abc\"", "allowed: a whole number"}},
    {"fraction_for_integer",
     "train { lanes: 1.5 }",
     {":1:16: train.lanes: ", "1.5", "allowed: a whole number"}},
    {"fraction_in_a_list",
     "model { mlp { hidden: [1, 2.5] } }",
     {"model.mlp.hidden: ", "2.5", "allowed: a whole number"}},
    {"negative_seed", "seed: -1", {":1:7: seed: ", "-", "allowed: a whole number >= 0"}},
    {"integer_too_large",
     "train { steps: 99999999999999999999 }",
     {"train.steps: ", "99999999999999999999", "allowed: a whole number"}},
    {"text_for_number", "schedule { lr: high }", {"schedule.lr: ", "high", "allowed: a number"}},
    {"word_for_bool",
     "model { gpt { bias: maybe } }",
     {"model.gpt.bias: ", "maybe", "allowed: true or false"}},
    {"word_for_bool_at_the_end_of_a_line",
     "output {\n  timeline: yes\n}",
     {":2:13: output.timeline: ", "yes", "allowed: true or false"}},
    {"number_for_text", "name: 5", {":1:7: name: ", "5", "allowed: text in quotes"}},
    {"number_for_section",
     "comm: 5",
     {":1:7: comm: ", "\"5\"", "allowed: a section { ... } of order"}},
    {"type_differs_between_sections", "train { eval: 3 }", {"'eval' in train", "allowed: global_"}},
    {"comma_at_the_end_of_a_list",
     "model { mlp { hidden: [1,\n 2,\n] } }",
     {":3:1: ", "found ']'", "(in '] } }')"}},
    {"comment_of_another_language", "// a\nseed: 1", {":1:1: a comment begins with #"}},
    {"merge_conflict", "seed: 1\n<<<<<<< HEAD\nseed: 2", {":2:1: ", "merge conflict in Git"}},
    {"comment_before_json", "# a\n{\"seed\": 1}", {":2:1: ", "nothing may stand before the {"}},
    {"control_character", "seed: 1\n\x1a", {":2:1: is a control character", "\\x1a"}},
    {"backquotes", "name: `a`", {":1:7: name: value is '`'; allowed: text in quotes"}},
    {"given_twice", "seed: 1\nseed: 2", {":2:1: ", "\"seed\"", "multiple times", "(in 'seed: 2')"}},
    {"two_models",
     "model { mlp {} gpt {} }",
     {":1:16: ", "\"gpt\"", "\"mlp\"", "(in 'model { mlp {} gpt {} }')"}},
    {"brace_missing", "train {", {":1:8: "}},
    {"string_not_closed", "name: \"a\nb\"", {":1:", "(in 'name: \"a')"}},
    {"not_text", std::string("\x00\x01\x7f\xff", 4), {":1:1: ", "\\x00\\x01\\x7f"}},
    {"extension", "[a.b.c]: 1", {":1:", "a.b.c"}},
};

INSTANTIATE_TEST_SUITE_P(All, TextRefusal, testing::ValuesIn(kCases), [](const auto& info) {
  return std::string(info.param.label);
});

TEST(Text, TenThousandLevelsAreRefused) {
  const std::string levels = "model { ";
  std::string text;
  for (int i = 0; i < 10000; ++i) text += levels;
  expect_contains(refusal(text), {"run.textproto:1:", "allowed: mlp, gpt"});
  const std::string brackets = "model { mlp { hidden: " + std::string(10000, '[');
  expect_contains(refusal(brackets), {"run.textproto:1:24: model.mlp.hidden"});
  const std::string braces = "model " + std::string(10000, '{');
  expect_contains(refusal(braces), {"run.textproto:1:8: "});
}

TEST(Text, SizeIsLimitedToOneMebibyte) {
  const std::string comment = "\n#";
  std::string text = kMlpText + comment;
  text.resize(size_t{1} << 20, '#');
  EXPECT_NO_THROW(parse_good(text));
  text += '#';
  EXPECT_EQ(refusal(text), "run.textproto: size is 1048577 bytes; allowed: at most 1048576");
}

TEST(Text, LongLinesAreCut) {
  expect_contains(refusal("train { " + std::string(5000, 'x') + ": 1 }"), {"xxx...' in train"});
  // The limit falls into the middle of a two-byte character, which must stay whole.
  std::string name = "x" + std::string(50, 'y');
  while (name.size() < 200) name += "\u00fc";
  const std::string umlauts = refusal("name: '" + name + "'" + kMlpText);
  expect_contains(umlauts, {"\u00fc...'"});
  expect_contains(refusal("seed: 1 seed: 2 " + std::string(5000, ' ')), {"...')"});
}

TEST(Text, NulBytesInTextAreRefused) {
  const std::string text = "model { mlp {} } data { table { train: 'a\\000b' target: 'y' } }";
  expect_contains(refusal(text), {"data.table.train: value is 'a\\x00b'", "allowed: text without"});
  const std::string list = "model { mlp {} } data { table { ignore: ['a', '\\000'] } }";
  expect_contains(refusal(list), {"data.table.ignore: value is '\\x00'"});
}

TEST(Text, FloatsBeyondTheirRangeAreRefused) {
  expect_contains(refusal("model { mlp {} } data { idx { mean: 1e39 } }"),
                  {"data.idx.mean: value is inf; allowed: a finite number"});
  expect_contains(refusal("model { mlp {} } data { idx { std: 1e-50 } }"),
                  {"data.idx.std: value is 0; allowed: a finite number > 0"});
  expect_contains(refusal("model { mlp {} } data { idx { std: nan } }"),
                  {"data.idx.std: value is nan; allowed: a finite number > 0"});
}

}  // namespace
}  // namespace lockstep::config
