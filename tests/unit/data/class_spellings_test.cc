// Catches: spellings of yes and no that become classes of their own, and names that are taken for
// answers although they are not.
#include "runtime/data/class_spellings.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

using Names = std::vector<std::string>;

ClassSpellings spellings_of(const Names& names) {
  ClassSpellings spellings;
  for (const std::string& name : names) spellings.add(name);
  spellings.finish();
  return spellings;
}

Names names_of(const Names& names) { return spellings_of(names).names(); }

TEST(ClassSpellings, AnswersAreTwoClassesWithTheirMostFrequentNames) {
  EXPECT_EQ(names_of({"True", "TRUE", "true", "False", "FALSE", "True", "FALSE"}),
            (Names{"FALSE", "True"}));
  EXPECT_EQ(names_of({"yes", "Yes", "Y", "y", "NO", "n", "no", "no", "y", "y"}),
            (Names{"no", "y"}));
  EXPECT_EQ(names_of({"On", "on", "OFF"}), (Names{"OFF", "on"}));
  EXPECT_EQ(names_of({"1", "0", "True", "False", "1", "0"}), (Names{"0", "1"}));
  EXPECT_EQ(names_of({"1.0", "0.0", "True", "False", "True", "False"}), (Names{"False", "True"}));
  EXPECT_EQ(names_of({" true", "True", "true "}), (Names{"true "}));  // one class only
  // The first of them is no, whatever their bytes are.
  EXPECT_EQ(names_of({"TRUE", "TRUE", "T", "false"}), (Names{"false", "TRUE"}));
  const ClassSpellings spellings = spellings_of({"True", "TRUE", "False"});
  EXPECT_TRUE(spellings.merges());
  EXPECT_EQ(spellings.spellings(), 3);
}

TEST(ClassSpellings, UniformNamesStayInTheOrderOfTheirBytes) {
  EXPECT_EQ(names_of({"false", "TRUE"}), (Names{"TRUE", "false"}));
  EXPECT_EQ(names_of({"no", "yes"}), (Names{"no", "yes"}));
  EXPECT_EQ(names_of({"1", "0"}), (Names{"0", "1"}));
  EXPECT_FALSE(spellings_of({"no", "yes"}).merges());
  // An evaluation file may spell them in another way.
  EXPECT_EQ(spellings_of({"no", "yes"}).key_of("YES"), spellings_of({"no", "yes"}).key_of("yes"));
  EXPECT_EQ(spellings_of({"0", "1"}).key_of("False"), "0");
  EXPECT_EQ(spellings_of({"no", "yes"}).key_of("True"), "True");  // another kind of answer
}

TEST(ClassSpellings, OtherNamesAreNotMerged) {
  EXPECT_EQ(names_of({"T", "F", "N"}), (Names{"F", "N", "T"}));  // N may be neutral
  EXPECT_EQ(names_of({"yes", "no", "No", "maybe"}), (Names{"No", "maybe", "no", "yes"}));
  EXPECT_EQ(names_of({"true", "True", "yes"}), (Names{"True", "true", "yes"}));
  EXPECT_EQ(names_of({"0", "1", "2", "true"}), (Names{"0", "1", "2", "true"}));
  EXPECT_EQ(names_of({"Cat", "cat"}), (Names{"Cat", "cat"}));
}

TEST(ClassSpellings, NamesAreComparedInOneForm) {
  const std::string composed = "\xC3\x9C", decomposed = "U\xCC\x88";
  EXPECT_EQ(names_of({composed, decomposed, decomposed}), Names{decomposed});
  const ClassSpellings spellings = spellings_of({composed});
  EXPECT_EQ(spellings.key_of(decomposed), spellings.key_of(composed));
}

}  // namespace
}  // namespace lockstep::data
