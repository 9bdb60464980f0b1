// Texts that are no config, or that an editor has changed. Catches messages about single characters
// of another format, characters that pass, and good configs that are refused.

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

std::string refusal_of(const std::string& text, const std::string& path) {
  try {
    parse_config(text, path, {});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(OtherFormats, AreNamedWithTheRemedy) {
  const std::string yaml = "# a run\nmodel:\n  mlp:\n    hidden: [32, 16]\n";
  expect_contains(refusal_of(yaml, "a.txt"), {"a.txt: is YAML, not a config", "yaml.safe_load"});
  expect_contains(refusal_of("model:\n- mlp\n", "a"), {"a: is YAML"});
  expect_contains(refusal_of("---\nname: x\n", "a"), {"a: is YAML"});
  expect_contains(refusal_of("name: x\n", "a.yml"), {"a.yml: is YAML"});
  expect_contains(refusal_of("[model.mlp]\nhidden = [1]\n", "a"), {"a: is TOML", "tomllib"});
  expect_contains(refusal_of("lr = 0.1\n", "a"), {"a: is TOML"});
  expect_contains(refusal_of("import torch\n\nlr = 0.1\n", "a"), {"a: is a Python program"});
  expect_contains(refusal_of("[\n  {\"seed\": 1}\n]", "a.json"), {"is a JSON array", "one object"});
  expect_contains(refusal_of("```\n" + kMlpText + "```\n", "a"), {"is Markdown", "begin with ```"});
  expect_contains(refusal_of("<!DOCTYPE html>\n", "a"), {"a: is a web page (HTML)"});
  expect_contains(refusal_of("\x1F\x8B\x08", "a"), {"a: is gzip-compressed", "gzip -d"});
}

TEST(OtherFormats, ConfigsOfOtherProgramsAreNamed) {
  expect_contains(refusal_of("{\"_name\": \"\", \"architectures\": [\"Llama\"]}", "config.json"),
                  {"is the config.json of a Hugging Face model", "model { from: \"FOLDER\" }"});
  expect_contains(refusal_of("base_model: x\ndatasets:\n  - path: y\n", "a.yml"), {"Axolotl"});
  expect_contains(refusal_of("{\"zero_optimization\": {\"stage\": 2}}", "a"), {"DeepSpeed"});
  // Another program's field in a section of ours is only an unknown field.
  expect_contains(refusal_of("{\"train\": {\"zero_optimization\": 1}}", "a"),
                  {"in train; allowed"});
}

TEST(OtherFormats, Utf16IsNamed) {
  std::string little = "\xFF\xFE", big, plain;
  for (const char c : kMlpText) {
    little += {c, '\0'};
    plain += {c, '\0'};
    big += {'\0', c};
  }
  expect_contains(refusal_of(little, "a"), {"a: is UTF-16 text", "iconv -f UTF-16 -t UTF-8"});
  expect_contains(refusal_of(plain, "a"), {"a: is UTF-16 text", "iconv -f UTF-16LE"});
  expect_contains(refusal_of(big, "a"), {"a: is UTF-16 text", "iconv -f UTF-16BE"});
}

TEST(OtherFormats, LinesMayEndAsOnAnySystem) {
  const std::string text = "# a comment\n" + kMlpText;
  for (const std::string end : {"\r\n", "\r"}) {
    std::string other;
    for (const char c : text) c == '\n' ? other += end : other += c;
    EXPECT_EQ(parse_good(other), parse_good(text));
    EXPECT_EQ(parse_good("\xEF\xBB\xBF" + other), parse_good(text));
    expect_contains(refusal(other + "seed: x"), {"run.textproto:6:7: seed"});
  }
}

TEST(OtherFormats, OddCharactersAreNamedWithTheirPlace) {
  expect_contains(refusal(kMlpText + "seed:\u00a01"),
                  {":5:6: U+00A0 is a no-break space; write a"});
  expect_contains(refusal(kMlpText + "name: \u201cx\u201d"),
                  {":5:7: '\u201c' (U+201C) is a curly"});
  expect_contains(refusal(kMlpText + "name: \"x\u201d"), {":5:9: '\u201d' (U+201D) is a curly"});
  expect_contains(refusal(kMlpText + "s\u0435ed: 1"), {":5:2: '\u0435' (U+0435) is a Cyrillic"});
  expect_contains(refusal(kMlpText + "\xE9"), {":5:1: the byte 0xE9 is not UTF-8"});
}

TEST(OtherFormats, QuotesAndCommentsMayHaveAnyCharacter) {
  const std::string text =
      "model { mlp {} } # \u201c\u00a0\n"
      "data { table { train: \"\u00fc\u201c\u00a0'\\\"\u2013.csv\" target: '\u201d' } }\n"
      "train { steps: 1 } optimizer { sgd {} }\n";
  const RunConfig config = parse_good(text);
  EXPECT_EQ(std::get<TableConfig>(config.data.source).train, "\u00fc\u201c\u00a0'\"\u2013.csv");
  EXPECT_EQ(std::get<TableConfig>(config.data.source).target, "\u201d");
}

TEST(OtherFormats, OverridesNameOddCharacters) {
  expect_contains(refusal(kMlpText, {"train.steps=\u20135"}),
                  {"train.steps: value is '\u20135'", "(U+2013) is a long dash; write -"});
  expect_contains(refusal(kMlpText, {"train.steps\u00a0=5"}), {"U+00A0 is a no-break space"});
  expect_contains(refusal(kMlpText, {"name=\u201cx\u201d"}), {"name: value is", "U+201C", "curly"});
  EXPECT_EQ(std::get<TableConfig>(
                parse_good(kMlpText, {"data.table.train=\u00fc \u201ca\u201d.csv"}).data.source)
                .train,
            "\u00fc \u201ca\u201d.csv");
}

}  // namespace
}  // namespace lockstep::config
