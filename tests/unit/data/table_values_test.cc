// Catches columns with nearly as many values as rows of which nothing is reported, numbers of other
// notations that are read wrongly, and warnings about ordinary categories.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/tables/table.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

OpenedData open(const std::string& text, TableConfig table = {}, Loss loss = {}) {
  if (table.target.empty()) table.target = "y";
  const TableText file{text, "t.csv"};
  return make_table(file, nullptr, DataConfig{}, table, test::mlp(loss), TableUse::kTraining);
}

std::vector<std::string> warnings_of(const std::string& text, const TableConfig& table = {}) {
  return open(text, table).summary.warnings;
}

// `rows` rows of a column `name` with the cell of each row, and two classes in turn.
std::string table_of(int rows,
                     const std::function<std::string(int)>& cell,
                     const std::string& name = "x") {
  std::string text = name + ";y\n";
  for (int i = 0; i < rows; ++i) text += fmt::format("{};{}\n", cell(i), i % 2 == 0 ? "a" : "b");
  return text;
}

TableConfig semicolons() {
  TableConfig table;
  table.delimiter = ";";
  return table;
}

TEST(TableValues, EveryNumberHasTheFormat) {
  TableConfig table = semicolons();
  table.decimal = ",";
  table.thousands = ".";
  // pandas reads -0.5 and 2000.5: mean 1000 and deviation 1000.5.
  const OpenedData opened =
      open("x;y\n-0,5;1.000,25\n2.000,5;-2,5e1\n", table, Loss::kMeanSquaredError);
  EXPECT_EQ(opened.summary.features, 1);
  const auto first = test::read<float, float>(*opened.train, {.index = 0});
  EXPECT_EQ(first.input[0], -1);
  EXPECT_EQ(first.target[0], 1000.25f);
  EXPECT_EQ((test::read<float, float>(*opened.train, {.index = 1}).target[0]), -25);
  // Classes that are numbers are sorted as such, and probabilities are read.
  const OpenedData classes = open("x;y\n1;10,5\n2;2,5\n3;1.000\n", table);
  EXPECT_EQ(classes.summary.class_names, (std::vector<std::string>{"2,5", "10,5", "1.000"}));
  const OpenedData soft = open("x;y\n1;0,25\n2;1\n", table, Loss::kBinaryCrossEntropy);
  EXPECT_EQ((test::read<float, float>(*soft.train, {.index = 0}).target[0]), 0.25f);
}

TEST(TableValues, AMarkMayBeTheDelimiterOfCellsInQuotes) {
  TableConfig table;
  table.thousands = ",";
  const OpenedData opened = open("x,y\n\"1,000\",a\n\"3,000\",b\n", table);
  EXPECT_EQ(opened.summary.features, 1);
}

TEST(TableValues, NotationsAreNamedWithTheirRemedy) {
  const auto fraction = [](int i) { return fmt::format("{},{:04}", i % 7 - 3, 977 * i % 10000); };
  std::vector<std::string> warnings = warnings_of(table_of(120, fraction), semicolons());
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0],
               {"t.csv: column 'x' has 120 different values in 120 rows and becomes 121 inputs",
                "the first is '-3,0000' on line 2",
                "numbers with a decimal comma: set data.table.decimal: \",\""});
  TableConfig table = semicolons();
  table.decimal = ",";
  EXPECT_TRUE(warnings_of(table_of(120, fraction), table).empty());
  // Numbers are never categories, so that few values are enough.
  const auto few = [](int i) { return fmt::format("0,{}", i % 5); };
  EXPECT_EQ(warnings_of(table_of(120, few), semicolons()).size(), 1u);
  EXPECT_EQ(warnings_of(table_of(6, few), semicolons()).size(), 1u);
  // Nor does another mark help if a column has the config's.
  std::string both = "x;z;y\n";
  for (int i = 0; i < 6; ++i) both += fmt::format("{};{}.5;{}\n", few(i), i, i % 2 ? "a" : "b");
  for (const char* decimal : {".", ","}) {
    TableConfig mixed = semicolons();
    mixed.decimal = decimal;
    expect_parts(warnings_of(both, mixed).at(0),
                 {fmt::format("write them with the decimal mark \"{}\"", decimal),
                  decimal[0] == '.' ? "as in column 'z'" : "as in column 'x'"});
  }
  // A number that must be one names the remedy, too.
  table = semicolons();
  table.numeric = {"x"};
  expect_parts(error_of([&] { warnings_of(table_of(6, few), table); }),
               {"t.csv:2", "'0,0' is not a number", "set data.table.decimal: \",\""});
}

TEST(TableValues, IdsAndTextsAreReported) {
  const auto id = [](int i) { return fmt::format("cust-{:05}", i * 7919 % 100000); };
  std::vector<std::string> warnings = warnings_of(table_of(120, id, "customer"), semicolons());
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0],
               {"'cust-00000' on line 2", "like ids", "set data.table.ignore: \"customer\""});
  TableConfig table = semicolons();
  table.categorical = {"x"};
  EXPECT_EQ(warnings_of(table_of(120, id), table).size(), 1u);
  const auto name = [](int i) { return std::string(1 + i / 26, static_cast<char>('a' + i % 26)); };
  warnings = warnings_of(table_of(60, name), semicolons());
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0], {"to leave the column out, set data.table.ignore: \"x\""});
  // The remedies work: with fewer values, a column of the config's categories is not reported.
  const auto pairs = [&](int i) { return name(i * 3 / 4); };
  warnings = warnings_of(table_of(60, pairs), semicolons());
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0], {"45 different values", "name it in data.table.categorical"});
  EXPECT_TRUE(warnings_of(table_of(60, pairs), table).empty());
}

TEST(TableValues, OrdinaryCategoriesAreNotReported) {
  const auto of = [](int values) {
    return [values](int i) { return fmt::format("city {}", i % values); };
  };
  EXPECT_TRUE(warnings_of(table_of(120, of(60)), semicolons()).empty());
  EXPECT_FALSE(warnings_of(table_of(120, of(61)), semicolons()).empty());
  const auto name = [](int i) { return std::string(1, static_cast<char>('a' + i)); };
  EXPECT_TRUE(warnings_of(table_of(20, name), semicolons()).empty());
  const auto station = [](int i) { return fmt::format("U{}", i % 5); };
  EXPECT_TRUE(warnings_of(table_of(8, station), semicolons()).empty());
  TableConfig table = semicolons();
  table.categorical = {"x"};
  EXPECT_TRUE(warnings_of(table_of(120, of(100)), table).empty());  // as the config asks for
}

TEST(TableValues, ManyColumnsWithOneCauseAreThreeWarnings) {
  std::string header, row;
  for (int i = 0; i < 50; ++i) header += fmt::format("x{};", i), row += "{},5;";
  std::string text = header + "y\n";
  for (int i = 0; i < 9; ++i) {
    std::string cells = row;
    for (size_t at; (at = cells.find("{}")) != std::string::npos;)
      cells.replace(at, 2, std::to_string(i));
    text += cells + (i % 2 == 0 ? "a\n" : "b\n");
  }
  const std::vector<std::string> warnings = warnings_of(text, semicolons());
  ASSERT_EQ(warnings.size(), 4u);
  EXPECT_EQ(warnings[3], "t.csv: 47 more columns are like these");
}

TEST(TableValues, WordsOfPandasAreMissing) {
  // pandas._libs.parsers.STR_NA_VALUES, and "?".
  std::string text = "x,y\n1,a\n3,b\n";
  for (const char* word : {"",     "?",    "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN",
                           "-NaN", "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",
                           "NULL", "NaN",  "None",   "n/a",      "nan",  "null"})
    text += std::string(word) + ",a\n";
  const OpenedData opened = open(text);
  EXPECT_EQ(opened.summary.features, 2);  // the number, and whether it is missing
  EXPECT_TRUE(opened.summary.warnings.empty());
  const std::vector<std::string> warnings =
      warnings_of("x,y\n1,a\n2,b\n3,a\nunknown,b\n4,a\nunknown,b\n");
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0], {"except \"unknown\"", "data.table.missing: [\"\", \"unknown\"]"});
  // The remedy keeps the words that the file has, or that the config gives.
  const std::string text_of_two = "x,z,y\n1,1,a\n2,NA,b\n3,3,a\n-,null,b\n4,5,a\n-,6,b\n";
  expect_parts(warnings_of(text_of_two).at(0),
               {"data.table.missing: [\"\", \"NA\", \"null\", \"-\"]"});
  TableConfig table;
  table.missing = {"", "NA", "null", "none"};
  expect_parts(warnings_of(text_of_two, table).at(0),
               {"[\"\", \"NA\", \"null\", \"none\", \"-\"]"});
}

TEST(TableValues, ARepeatedHeaderIsNamed) {
  const std::string part = "x;y\n1;a\n2;b\n3;a\n4;b\n5;a\n6;b\n";
  expect_parts(warnings_of(part + part, semicolons()).at(0), {"t.csv: line 8 repeats the header"});
}

TEST(TableValues, ColumnsThatNumberTheRows) {
  const auto numbers = [](const std::string& name, int first, int step) {
    return table_of(
        30, [=](int i) { return std::to_string((first + i * step) % 31); }, name);
  };
  std::vector<std::string> warnings = warnings_of(numbers("", 0, 1), semicolons());
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0],
               {"column 0 (without a name) counts the 30 rows",
                "'0' on line 2",
                "set data.table.ignore: \"\""});
  EXPECT_EQ(warnings_of(numbers("PassengerId", 1, 1), semicolons()).size(), 1u);
  // In another order, and without a gap.
  warnings = warnings_of(numbers("Unnamed: 0", 0, 7), semicolons());
  ASSERT_EQ(warnings.size(), 1u);
  expect_parts(warnings[0], {"has a different whole number in each of its 30 rows, like an id"});
  EXPECT_TRUE(warnings_of(numbers("year", 1, 1), semicolons()).empty());
  TableConfig table = semicolons();
  table.numeric = {"id"};
  EXPECT_TRUE(warnings_of(numbers("id", 1, 1), table).empty());
  // Equal values, or fractions, are no ids.
  EXPECT_TRUE(warnings_of(table_of(
                              30, [](int i) { return std::to_string(i / 2); }, ""),
                          semicolons())
                  .empty());
}

}  // namespace
}  // namespace lockstep::data
