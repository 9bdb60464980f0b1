// Catches: a table with a slip in it, of which nobody says anything, and warnings of what is meant.
#include "runtime/data/tables/table_warnings.h"

#include <gtest/gtest.h>

#include "files.h"
#include "runtime/data/tables/table.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

// "x,y" and so many rows of numbers and two classes in turn, with `change` in place of a row.
std::string rows(int count, int at = -1, const std::string& change = "") {
  std::string text = "x,y\n";
  for (int i = 0; i < count; ++i)
    text += i == at ? change + "\n" : fmt::format("{},{}\n", i, i % 2 == 0 ? "a" : "b");
  return text;
}

std::vector<std::string> warnings_of(const std::string& text, TableConfig table = {}) {
  table.target = "y";
  const TableText file{text, "t.csv"};
  return make_table(file, nullptr, DataConfig{}, table, test::mlp(), TableUse::kTraining)
      .summary.warnings;
}

TEST(TableDoubts, ASlipThatMakesAColumnCategorical) {
  const std::vector<std::string> warnings = warnings_of(rows(4000, 16, "1O,a"));
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0],
               {"t.csv: column 'x' is taken as categorical with 4000 values",
                "1 of its 4000 cells is not a float32 number",
                "the first is '1O' on line 18"});
}

TEST(TableDoubts, ANumberThatFloat32DoesNotHold) {
  // However many of them there are.
  const std::vector<std::string> warnings = warnings_of("x,y\n1e999,a\n-1e999,b\n3,a\n");
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0], {"2 of its 3 cells are not a float32 number", "'1e999' on line 2"});
}

TEST(TableDoubts, AColumnWithoutAValue) {
  const std::vector<std::string> warnings = warnings_of("x,e,y\n1,NaN,a\n2,NaN,b\n");
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0],
               {"column 'e' has no value", "all its 2 cells", "the first is 'NaN' on line 2"});
}

// Of the evaluation's rows, also where they are held out of the training file; a missing value is
// none.
TEST(TableDoubts, CategoriesThatTrainingHasNotSeen) {
  TableConfig table;
  table.target = "y";
  const TableText train{"c,x,y\nred,1,a\nblue,2,b\nred,3,a\n", "t.csv"};
  const std::string rows = "c,x,y\nred,1,a\ngreen,2,b\n?,2,b\ngrey,1,a\ngreen,2,b\n";
  const TableText eval{rows, "e.csv"};
  const auto open = [&] {
    return make_table(train, &eval, DataConfig{}, table, test::mlp(), TableUse::kTraining);
  };
  const std::vector<std::string> warnings = open().summary.warnings;
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0],
               {"e.csv: column 'c' has values in 3 of 5 evaluation rows that no training row has",
                "the first is 'green' on line 3"});
  table.ignore = {"c"};
  EXPECT_TRUE(open().summary.warnings.empty());
}

TEST(TableDoubts, WhatIsMeantIsNoDoubt) {
  EXPECT_TRUE(warnings_of(rows(4000)).empty());
  EXPECT_TRUE(warnings_of("x,y\nred,a\n1,b\n2,a\n3,b\n").empty());  // a quarter is no slip
  TableConfig categorical;
  categorical.categorical = {"x"};
  EXPECT_TRUE(warnings_of(rows(4000, 16, "1O,a"), categorical).size() == 1);  // an input per row
  EXPECT_TRUE(warnings_of("x,y\n1O,a\n1,b\n1,b\n1,b\n2,a\n", categorical).empty());
}

TEST(TableDoubts, StrictMakesThemErrors) {
  const test::TemporaryFolder folder;
  const auto open = [&](const std::string& text) {
    TableConfig table;
    table.train = "t.csv";
    table.target = "y";
    table.strict = true;
    DataConfig config;
    config.dir = folder.path();
    config.source = table;
    folder.write("t.csv", text);
    open_data(config, test::mlp(), 0, true);
  };
  for (const std::string& text : {rows(4000, 16, "1O,a"),
                                  std::string("x,y\n1e999,a\n2,b\n"),
                                  std::string("x,e,y\n1,NaN,a\n2,NaN,b\n"),
                                  std::string("x,y\n1,a\n2,a\n"),
                                  std::string("x,,y\n1,0,a\n1,1,b\n5,2,b\n")})
    expect_parts(error_of([&] { open(text); }), {"t.csv", "data.table.strict"});
  EXPECT_NO_THROW(open(rows(10)));
}

TEST(TableDoubts, EqualHeadersAreAlwaysAnError) {
  expect_parts(error_of([&] { warnings_of("x,x,y\n1,2,a\n"); }),
               {"t.csv", "columns 0 and 1 (from 0) of the header are both named 'x'"});
}

TEST(TableDoubts, ControlCharactersOfNamesAreEscaped) {
  expect_parts(error_of([&] { warnings_of("\x1b[2J,\x1b[2J,y\n1,2,a\n"); }), {"'\\x1b[2J'"});
}

}  // namespace
}  // namespace lockstep::data
