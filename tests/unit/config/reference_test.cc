// What is said of fields: `lockstep config` and configs/FIELDS.md. Catches a page that is older
// than the schema, and a text of a config with all fields that is another config.

#include "runtime/config/reference.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/unit/config/fixtures.h"

namespace lockstep::config {
namespace {

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

const std::filesystem::path kConfigs = LOCKSTEP_CONFIGS;

TEST(Reference, ThePageIsThatOfTheSchema) {
  EXPECT_TRUE(text_of(kConfigs / "FIELDS.md") == reference_page())
      << "configs/FIELDS.md is not what the schema says; make it again:\n"
         "build/release/launcher/lockstep config --reference > configs/FIELDS.md";
}

TEST(Reference, AFieldIsFoundByPathAndByName) {
  const auto by_path = find_references("train.lanes");
  ASSERT_EQ(by_path.size(), 1u);
  EXPECT_EQ(by_path[0].type, "whole number");
  EXPECT_EQ(by_path[0].default_value, "0");
  EXPECT_EQ(by_path[0].limit, "0..4096");
  EXPECT_FALSE(by_path[0].is_section);
  const auto by_name = find_references("lanes");
  ASSERT_EQ(by_name.size(), 1u);
  EXPECT_EQ(by_name[0].path, "train.lanes");
  EXPECT_EQ(find_references("dropout").size(), 8u);
  // A path is meant before a name: data.image.mean is no answer to "data".
  ASSERT_EQ(find_references("data").size(), 1u);
  EXPECT_TRUE(find_references("data")[0].is_section);
}

TEST(Reference, SaysWhatTheSchemaSays) {
  const FieldReference gamma = find_references("schedule.gamma")[0];
  EXPECT_EQ(gamma.when, "only with schedule.kind STEP or EXPONENTIAL");
  EXPECT_EQ(gamma.limit, "a finite number > 0");
  EXPECT_EQ(gamma.default_value, "0.1");
  EXPECT_EQ(gamma.on_change, "another value is reported in the log, and the run resumes with it");
  EXPECT_EQ(find_references("comm.zero_stage")[0].on_change, "another value changes no bit");
  const FieldReference train = find_references("data.text.train")[0];
  EXPECT_EQ(train.required, "the path of a text file");
  EXPECT_EQ(train.default_value, "");
  const FieldReference missing = find_references("data.table.missing")[0];
  EXPECT_EQ(
      missing.default_value,
      R"(["", "?", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", )"
      R"("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"])");
  const FieldReference order = find_references("comm.order")[0];
  ASSERT_EQ(order.values.size(), 2u);
  EXPECT_EQ(order.values[1].name, "FAST");
  EXPECT_EQ(order.default_value, "TREE");
}

TEST(Reference, ASectionHasWhatLiesDirectlyBelow) {
  std::vector<std::string> names;
  for (const auto& field : references_below(find_references("optimizer")[0])) {
    names.push_back(field.name);
    EXPECT_EQ(field.is_choice, field.is_section) << field.path;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"sgd",
                                      "adam",
                                      "adamw",
                                      "lars",
                                      "lamb",
                                      "lion",
                                      "muon",
                                      "rmsprop",
                                      "adagrad",
                                      "adafactor",
                                      "clip_norm",
                                      "decay_bias_and_norm",
                                      "moments"}));
}

TEST(Reference, UnknownNamesGetNearMatches) {
  for (const auto& [name, near] : {std::pair{"lane", "'lanes'"},
                                   std::pair{"train.lane", "'train.lanes'"},
                                   std::pair{"optimiser", "'optimizer'"}}) {
    try {
      find_references(name);
      ADD_FAILURE() << name;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.code(), ExitCode::kUsage);
      expect_contains(error.what(), {std::string("'") + name + "'", "did you mean", near});
    }
  }
}

TEST(Reference, FirstSentences) {
  EXPECT_EQ(first_sentence("One. Two."), "One.");
  EXPECT_EQ(first_sentence("Below 0.5 at most."), "Below 0.5 at most.");
}

TEST(CompleteText, LoadsToTheSameConfig) {
  int configs = 0;
  for (const auto& path : example_configs(kConfigs)) {
    ++configs;
    EXPECT_EQ(parse_good(complete_text(path, {})), load_config(path, {})) << path;
  }
  EXPECT_GT(configs, 5);
}

TEST(CompleteText, MarksWhatIsNeitherInTheFileNorSet) {
  const std::string text = complete_text(kConfigs / "models" / "adult_mlp.textproto",
                                         {"train.lanes=8", "data.table.missing=?"});
  expect_contains(text,
                  {"\n  lanes: 8\n",
                   "\n    missing: \"?\"\n",
                   "\n  hash_every: 0  # default\n",
                   "\n    horizontal_flip: 0  # default\n",
                   "\n  transport: AUTO  # default\n"});
}

}  // namespace
}  // namespace lockstep::config
