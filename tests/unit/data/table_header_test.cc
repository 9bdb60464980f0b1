// Catches columns that the config cannot name, headers that are none, and names that look the same.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "files.h"
#include "runtime/data/tables/table.h"

namespace lockstep::data {
namespace {

using test::error_of;
using test::expect_parts;

OpenedData open(const std::string& text, const TableConfig& table, const std::string& eval = "") {
  const TableText file{text, "t.csv"}, eval_file{eval, "e.csv"};
  return make_table(file,
                    eval.empty() ? nullptr : &eval_file,
                    DataConfig{},
                    table,
                    test::mlp(),
                    TableUse::kTraining);
}

TableConfig target(const std::string& name) {
  TableConfig table;
  table.target = name;
  return table;
}

std::string refusal(const std::string& text, const TableConfig& table = target("y")) {
  return error_of([&] { open(text, table); });
}

TEST(TableHeader, ColumnsWithoutANameAndNumbers) {
  const std::string text = ",a,y,\n0,1,u,\n1,3,v,\n2,1,u,\n";
  TableConfig table = target("y");
  const OpenedData all = open(text, table);
  ASSERT_EQ(all.summary.warnings.size(), 2u);
  expect_parts(all.summary.warnings[0], {"column 0 (without a name)", "data.table.ignore: \"0\""});
  expect_parts(all.summary.warnings[1],
               {"column 3 (without a name) has no values", "ignore: \"3\""});
  for (const std::vector<std::string>& ignore :
       {std::vector<std::string>{""}, {"0", "3"}, {"Unnamed: 0", "Unnamed: 3"}}) {
    table.ignore = ignore;
    const OpenedData opened = open(text, table);
    EXPECT_EQ(opened.summary.features, 1);
    EXPECT_TRUE(opened.summary.warnings.empty());
  }
  table = target("2");
  table.categorical = {"1"};
  table.ignore = {""};
  EXPECT_EQ(open(text, table).summary.features, 3);
}

TEST(TableHeader, ANameWinsOverANumber) {
  // pandas writes the names 0, 1, 2 after its index.
  const std::string text = ",0,1,y\n0,5,red,u\n1,6,red,v\n";
  TableConfig table = target("y");
  table.ignore = {"0", ""};
  EXPECT_EQ(open(text, table).summary.features, 2);  // red and its slot for others
  table.ignore = {"0", "4"};
  expect_parts(refusal(text, table), {"no column '4' (data.table.ignore)", "by number 0 to 3"});
  table.ignore = {"0"};
  table.numeric = {"0"};
  expect_parts(error_of([&] { open(text, table); }, ExitCode::kUsage), {"numeric and ignore"});
}

TEST(TableHeader, NamesAreComparedInOneForm) {
  const std::string composed = "gr\u00F6\u00DFe", decomposed = "gro\u0308\u00DFe";
  EXPECT_EQ(open("a," + decomposed + "\n1,u\n2,v\n", target(composed)).summary.classes, 2);
  EXPECT_EQ(open("a," + decomposed + "\n1,u\n2,v\n", target(composed), "a," + composed + "\n1,u\n")
                .summary.eval_samples,
            1);
  EXPECT_EQ(open("a,\"\u00A0y \"\n1,u\n2,v\n", target("y")).summary.classes, 2);
  expect_parts(refusal(composed + "," + decomposed + ",y\n1,2,u\n"),
               {"columns 0 and 1", "look the same", "U+00F6", "U+006F U+0308"});
  expect_parts(refusal("a,Y\n1,u\n"), {"did you mean 'Y'?"});
  expect_parts(refusal("a,gr\xF6\xDF"
                       "e\n1,u\n",
                       target(composed)),
               {"not UTF-8", "iconv"});
}

TEST(TableHeader, AnotherDelimiter) {
  expect_parts(refusal("a;b;y\n0,5;1,5;u\n0,7;2,5;v\n"),
               {"3 with \";\"", "data.table.delimiter: \";\""});
  expect_parts(refusal("a\tb\ty\n1\t2\tu\n"), {R"(data.table.delimiter: "\t")"});
  expect_parts(refusal("a b y\n1 2 u\n"), {R"(data.table.delimiter: " ")"});
  expect_parts(refusal("sep=;\na;b;y\n1;2;u\n"), {"Excel", R"(data.table.delimiter: ";")"});
  expect_parts(error_of([] { open("a,y\n1,u\n", target("y"), "a;y\n1;u\n"); }),
               {"e.csv", "2 with \";\"", "the delimiter of the training file"});
  TableConfig table = target("0");
  table.header = false;
  expect_parts(refusal("1|2\n3|4\n", table), {R"(data.table.delimiter: "|")"});
  table = target("y");
  table.delimiter = ";";
  EXPECT_EQ(open("sep=;\na;y\n1;u\n2;v\n", table).summary.train_samples, 2);
}

TEST(TableHeader, LinesThatAreNoHeader) {
  expect_parts(refusal("# made by hand\n# in mV\na,b,y\n1,2,u\n3,4,v\n"),
               {"'# made by hand', is a comment", "delete the lines up to line 2"});
  expect_parts(refusal("# by hand, in mV, at night\na,y\n1,u\n3,v\n"),
               {"is a comment", "; delete it"});
  expect_parts(refusal("Report\n\na,b,y\n1,2,u\n3,4,v\n"),
               {"'Report'", "has 1 cell, but its rows have 3", "delete the lines before it"});
  expect_parts(refusal("Report\na,y\n1,u\n3,v\n"),
               {"'Report'", "has 1 cell, but its rows have 2", "delete the lines before it"});
  expect_parts(refusal("a,y\nr1,1,u\nr2,2,v\n"),
               {"2 names, but its rows have 3 cells", "has no name"});
  expect_parts(refusal("a,y\n1,u,\n2,v,\n"), {"ends with a delimiter"});
  expect_parts(refusal("a,y\n1,u\n# end\n"), {"t.csv:3", "'#' are not taken as comments"});
  expect_parts(refusal("0.5,u\n0.7,v\n"), {"no column 'y'", "data.table.header: false"});
  const OpenedData row = open("7,9,u\n3,4,v\n5,6,u\n7,8,v\n", target("2"));
  ASSERT_EQ(row.summary.warnings.size(), 1u);
  expect_parts(row.summary.warnings[0], {"looks like a row", "'u'", "data.table.header: false"});
  EXPECT_TRUE(open("c,y\nred,y\nblue,n\nred,y\n", target("y")).summary.warnings.empty());
  // Names that are numbers, as pandas writes them.
  EXPECT_TRUE(open("0,1,2\n3,4,2\n5,6,1\n5,7,1\n", target("2")).summary.warnings.empty());
  TableConfig years = target("2021");
  EXPECT_TRUE(open("2019,2020,2021\n3,4,2021\n5,6,2\n5,7,2\n", years).summary.warnings.empty());
  TableConfig table = target("1");
  table.header = false;
  std::string text = "a,y\n";
  for (int i = 0; i < 20; ++i) text += fmt::format("{},{}\n", i / 2, i % 2 == 0 ? "u" : "v");
  bool named = false;
  for (const std::string& warning : open(text, table).summary.warnings)
    named |= warning.find("data.table.header: true") != std::string::npos;
  EXPECT_TRUE(named);
}

}  // namespace
}  // namespace lockstep::data
