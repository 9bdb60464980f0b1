// Catches field splitting that differs from RFC 4180 and from what the class promises beyond it.

#include "runtime/data/tables/csv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::data {
namespace {

using Records = std::vector<std::vector<std::string>>;

Records split(std::string_view text, char delimiter = ',') {
  CsvReader reader(text, delimiter);
  Records records;
  while (reader.next()) {
    EXPECT_EQ(reader.problem(), "");
    records.emplace_back(reader.fields().begin(), reader.fields().end());
  }
  return records;
}

TEST(Csv, SplitsLinesAndFields) {
  EXPECT_EQ(split("a,b\n1,2\n"), (Records{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(split("a,b\r\n1,2"), (Records{{"a", "b"}, {"1", "2"}}));
  EXPECT_EQ(split("a,,\n,\n"), (Records{{"a", "", ""}, {"", ""}}));
  EXPECT_EQ(split("a\tb c\n", '\t'), (Records{{"a", "b c"}}));
  EXPECT_EQ(split("a  b\n", ' '), (Records{{"a", "", "b"}}));
  EXPECT_EQ(split("a,b\r1,2\r\r3,\r"), (Records{{"a", "b"}, {"1", "2"}, {"3", ""}}));
}

TEST(Csv, SkipsBlankLinesMarksAndSpaces) {
  EXPECT_EQ(split("\n\r\n  \na, b ,c d\n\n"), (Records{{"a", "b", "c d"}}));
  EXPECT_EQ(split("\xEF\xBB\xBF"
                  "a,b"),
            (Records{{"a", "b"}}));
  EXPECT_EQ(split(""), Records{});
  EXPECT_EQ(split("\n \n"), Records{});
}

TEST(Csv, SkipsAFirstLineThatAnnouncesTheDelimiterToExcel) {
  EXPECT_EQ(split("sep=;\r\na;b\r\n", ';'), (Records{{"a", "b"}}));
  EXPECT_EQ(split("\xEF\xBB\xBFSEP=\t\na\tb\n", '\t'), (Records{{"a", "b"}}));
  EXPECT_EQ(split("\"sep=,\"\na,b"), (Records{{"a", "b"}}));
  EXPECT_EQ(split("sep=;\na;b\n"), (Records{{"sep=;"}, {"a;b"}}));
  EXPECT_EQ(split("a\nsep=,\n"), (Records{{"a"}, {"sep=", ""}}));
  CsvReader reader("sep=,\na\n", ',');
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.line(), 2);
}

TEST(Csv, CountsFieldsThatItDoesNotKeep) {
  CsvReader reader("a,b\n1,\"say \"\"hi\"\"\",\"x\"\"y\",4\n5\n", ',', 2);
  for (const size_t count : {2, 4, 1}) {
    ASSERT_TRUE(reader.next());
    EXPECT_EQ(reader.problem(), "");
    EXPECT_EQ(reader.field_count(), count);
    EXPECT_EQ(reader.fields().size(), std::min<size_t>(count, 2));
  }
  EXPECT_FALSE(reader.next());
}

TEST(Csv, Quotes) {
  EXPECT_EQ(split("\"a,b\",c\n"), (Records{{"a,b", "c"}}));
  EXPECT_EQ(split("\"say \"\"hi\"\" now\",\"\"\"\",\"\"\n"),
            (Records{{"say \"hi\" now", "\"", ""}}));
  EXPECT_EQ(split("\"two\r\nlines\",x\n\"y\"\n"), (Records{{"two\r\nlines", "x"}, {"y"}}));
  EXPECT_EQ(split(" \" kept \" , z"), (Records{{" kept ", "z"}}));
  EXPECT_EQ(split("5\" pipe,x"), (Records{{"5\" pipe", "x"}}));
}

TEST(Csv, CountsLinesThroughQuotesAndBlankLines) {
  for (const char* text :
       {"a\n\n\"x\ny\"\nb\n", "a\r\r\"x\ry\"\rb", "a\r\n\r\n\"x\r\ny\"\r\nb\r\n"}) {
    CsvReader reader(text, ',');
    for (int64_t line : {1, 3, 5}) {
      ASSERT_TRUE(reader.next());
      EXPECT_EQ(reader.line(), line);
    }
    EXPECT_FALSE(reader.next());
  }
}

TEST(Csv, ReportsTextAfterAQuoteAndGoesOn) {
  CsvReader reader("\"a\"b,c\nd,e\n", ',');
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.problem(), "text follows the closing quote of field 1");
  EXPECT_FALSE(reader.unclosed_quote());
  ASSERT_TRUE(reader.next());
  EXPECT_EQ(reader.problem(), "");
  EXPECT_EQ(reader.fields().size(), 2u);
}

TEST(Csv, ReportsAnUnclosedQuote) {
  CsvReader reader("a\nb,\"c\nd\n", ',');
  ASSERT_TRUE(reader.next());
  ASSERT_TRUE(reader.next());
  EXPECT_TRUE(reader.unclosed_quote());
  EXPECT_EQ(reader.line(), 2);
  EXPECT_FALSE(reader.next());
}

TEST(Csv, ParsesNumbers) {
  const auto parse = [](std::string_view text) {
    double number = -999;
    return parse_number(text, &number) ? number : -999;
  };
  EXPECT_EQ(parse("12"), 12);
  EXPECT_EQ(parse("+2.5"), 2.5);
  EXPECT_EQ(parse("-1.5e3"), -1500);
  EXPECT_EQ(parse(".5"), 0.5);
  for (const char* text :
       {"", "+", "+-1", "1 2", "1x", "inf", "nan", "-inf", "1e39", "1e999", "0x10", "1,5"})
    EXPECT_EQ(parse(text), -999) << text;
}

}  // namespace
}  // namespace lockstep::data
