// Catches: labels that people never mean and of which nobody hears, warnings of what is meant, and
// messages with wrong numbers.
#include "runtime/data/class_warnings.h"

#include <gtest/gtest.h>

#include "files.h"

namespace lockstep::data {
namespace {

using test::expect_parts;
using Pairs = std::vector<std::pair<int32_t, int64_t>>;

ClassLabels labels_of(const Pairs& train, const Pairs& eval = {}, int64_t classes = 0) {
  ClassLabels labels;
  labels.where = "y.npy";
  for (const auto& [label, count] : train) labels.train.add(label, count);
  for (const auto& [label, count] : eval) labels.eval.add(label, count);
  labels.classes = std::max({classes, labels.train.largest() + 1, labels.eval.largest() + 1});
  return labels;
}

ClassLabels named(const std::vector<std::string>& names, int64_t samples = 20) {
  ClassLabels labels;
  labels.where = "t.csv: column 'y'";
  for (size_t i = 0; i < names.size(); ++i) labels.train.add(static_cast<int32_t>(i), samples);
  labels.classes = static_cast<int64_t>(names.size());
  labels.names = names;
  return labels;
}

void expect_one(const ClassLabels& labels, const std::vector<std::string>& parts) {
  const std::vector<std::string> warnings = class_warnings(labels);
  ASSERT_EQ(warnings.size(), 1u) << (warnings.empty() ? "" : warnings[0]);
  expect_parts(warnings[0], {labels.where + ": "});
  expect_parts(warnings[0], parts);
}

TEST(LabelCounts, SmallAndLargeLabelsAreCountedAlike) {
  LabelCounts counts;
  for (const int32_t label : {7, 900'000, 0, 7, 65'536, 900'000, 65'535}) counts.add(label);
  EXPECT_EQ(counts.sorted(), (Pairs{{0, 1}, {7, 2}, {65'535, 1}, {65'536, 1}, {900'000, 2}}));
  EXPECT_EQ(counts.total(), 7);
  EXPECT_EQ(counts.largest(), 900'000);
  EXPECT_EQ(counts.of(900'000), 2);
  EXPECT_EQ(counts.of(1), 0);
  EXPECT_EQ(counts.of(900'001), 0);
  EXPECT_EQ(LabelCounts().largest(), -1);
}

TEST(ClassWarnings, OrdinaryLabelsHaveNone) {
  EXPECT_TRUE(class_warnings(labels_of({{0, 16}, {1, 1}, {2, 400}})).empty());
  EXPECT_TRUE(class_warnings(labels_of({{0, 16}, {1, 16}}, {{1, 3}})).empty());
  EXPECT_TRUE(class_warnings(labels_of({{0, 1}, {1, 1}, {2, 1}})).empty());  // a tiny set
  EXPECT_TRUE(class_warnings(named({"-1", "1"})).empty());
  EXPECT_TRUE(class_warnings(named({"1.0", "2.0"})).empty());
  EXPECT_TRUE(class_warnings(ClassLabels{}).empty());
}

TEST(ClassWarnings, LabelsThatBeginAt1) {
  expect_one(labels_of({{1, 16}, {2, 16}, {3, 16}}),
             {"labels are 1 to 3", "class 0 has no sample", "subtract 1"});
  expect_one(labels_of({{1, 16}, {2, 16}}, {{1, 4}, {2, 4}}), {"labels are 1 to 2"});
  expect_one(labels_of({{5, 9}, {6, 9}}),
             {"5 to 6", "classes 0 to 4 have no sample", "subtract 5"});
}

TEST(ClassWarnings, Gaps) {
  expect_one(labels_of({{0, 12}, {2, 12}}), {"1 has no sample (1)", "from 0 to 1"});
  expect_one(labels_of({{0, 2}, {900'000, 2}}),
             {"2 different labels from 0 to 900000 make 900001 classes",
              "899999 have no sample (1, 2, 3, 4, 5 and 899994 more)",
              "from 0 to 1"});
}

// The format or the config has more classes than the labels, or fixes their numbers.
TEST(ClassWarnings, ClassesWithoutASample) {
  expect_one(labels_of({{0, 9}, {1, 9}}, {}, 4), {"2 of 4 classes have no training sample: 2, 3"});
  ClassLabels fixed = labels_of({{0, 9}, {2, 9}});
  fixed.fixed_numbers = true;
  expect_one(fixed, {"1 of 3 classes has no training sample: 1"});
  ClassLabels labels = named({"a", "b", "c"});
  labels.train = LabelCounts();
  labels.train.add(0, 5);
  labels.train.add(2, 5);
  expect_one(labels, {"1 of 3 classes has no training sample: 'b'"});
}

TEST(ClassWarnings, OneClass) {
  expect_one(labels_of({{0, 48}}),
             {"all 48 training samples have the class 0", "nothing to learn"});
  expect_one(labels_of({{3, 48}}), {"all 48 training samples have the class 3"});
  ClassLabels words = named({"O"});
  words.unit = "word";
  expect_one(words, {"all 20 training words have the class 'O'"});
  ClassLabels images = labels_of({{0, 48}});
  images.one_class_is_enough = true;
  EXPECT_TRUE(class_warnings(images).empty());
}

TEST(ClassWarnings, AnEvaluationWithOtherClasses) {
  const auto warnings = class_warnings(labels_of({{0, 9}, {1, 9}}, {{1, 2}, {2, 3}, {4, 1}}, 5));
  ASSERT_EQ(warnings.size(), 2u);
  expect_parts(warnings[0], {"1 of 5 classes has no training sample: 3"});
  expect_parts(warnings[1], {"4 of 6 evaluation samples", "no training sample has: 2, 4"});
  expect_one(labels_of({{0, 9}, {1, 9}}, {{0, 1}, {1, 1}, {2, 3}}),
             {"3 of 5 evaluation samples", "no training sample has: 2", "learn it"});
  expect_one(labels_of({{0, 9}, {1, 9}}, {{1, 10}}),
             {"all 10 evaluation samples have the class 1", "training has 2 classes"});
}

TEST(ClassWarnings, AnEvaluationThatCountsFromAnotherNumber) {
  expect_one(labels_of({{1, 9}, {2, 9}, {3, 9}}, {{0, 3}, {1, 3}, {2, 3}}),
             {"evaluation labels are 0 to 2", "training labels 1 to 3", "shifted by 1"});
}

TEST(ClassWarnings, ValuesTakenAsClasses) {
  std::vector<std::string> prices;
  for (int i = 0; i < 214; ++i) prices.push_back(std::to_string(100 + 3 * i));
  ClassLabels labels = named(prices, 1);
  labels.train.add(0, 36);  // 250 rows
  labels.for_values = "model.mlp.loss: MEAN_SQUARED_ERROR";
  expect_one(labels,
             {"214 different classes in 250 training samples, such as '100'",
              "set model.mlp.loss: MEAN_SQUARED_ERROR"});
  // Names with letters are no values.
  std::vector<std::string> ids;
  for (int i = 0; i < 24; ++i) ids.push_back("id" + std::to_string(i));
  ClassLabels of_ids = named(ids, 1);
  of_ids.for_values = labels.for_values;
  expect_one(of_ids, {"24 different classes", "hardly any class has two"});
  // Integers without names.
  Pairs ages;
  for (int32_t i = 0; i < 40; ++i) ages.emplace_back(20 + 2 * i, 1);
  expect_one(labels_of(ages), {"40 different classes in 40 training samples, such as 20"});
  // However often each comes, if they are not whole.
  expect_one(named({"1", "1.5", "2"}, 1000), {"3 different classes", "such as '1.5'"});
  EXPECT_TRUE(class_warnings(named({"1.5", "v2"}, 1000)).empty());
}

TEST(ClassWarnings, AWordAmongNumbers) {
  ClassLabels labels = named({"0", "1", "y"});
  expect_one(labels,
             {"most of the 3 classes are numbers, but not 'y' (20 of 60 training samples)"});
  labels.words_reported = true;
  EXPECT_TRUE(class_warnings(labels).empty());
  EXPECT_TRUE(class_warnings(named({"0", "y"})).empty());
  EXPECT_TRUE(class_warnings(named({"-1", "0", "1"})).empty());
}

TEST(ClassWarnings, NamesThatLookAlike) {
  ClassLabels labels = named({"Cat", "cat", "dog"});
  labels.train.add(1, 3);
  expect_one(labels, {"'Cat' (20 of the samples) and 'cat' (23)", "two classes"});
  expect_one(named({"a", "b", "b ", "B"}),
             {"'b' (20 of the samples) and 'b ' (20)", "1 more pair"});
  expect_one(named({"1", "1.0", "2"}), {"'1' (20 of the samples) and '1.0'"});
  expect_one(named({"\xC3\x9C", "\xC3\xBC"}), {"(U+00DC)", "(U+00FC)"});
}

TEST(ClassWarnings, NamesOfSets) {
  expect_one(named({"Train", "test", "val"}), {"called 'Train' and 'test'", "inside these"});
  EXPECT_TRUE(class_warnings(named({"test", "control"})).empty());
}

TEST(ClassWarnings, NotesInErrors) {
  LabelCounts others;
  others.add(4);
  EXPECT_EQ(numbering_note(others), "");
  others.add(7);
  EXPECT_EQ(numbering_note(others), "");
  LabelCounts counts;
  counts.add(1);
  counts.add(3);
  EXPECT_EQ(numbering_note(counts),
            "; the labels are 1 to 3, but classes are counted from 0: subtract 1");
  counts.add(0);
  EXPECT_EQ(numbering_note(counts), "");
  expect_parts(look_alike_note("Cat ", {"dog", "cat"}), {"'Cat ' differs from 'cat' only"});
  EXPECT_EQ(look_alike_note("cow", {"dog", "cat"}), "");
}

}  // namespace
}  // namespace lockstep::data
