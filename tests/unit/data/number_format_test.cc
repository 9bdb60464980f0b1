// Catches numbers of other notations that are read wrongly, and groups of digits that are taken as
// numbers although they are none.
#include "runtime/data/tables/number_format.h"

#include <gtest/gtest.h>

namespace lockstep::data {
namespace {

constexpr double kNone = -999;

double parse(std::string_view text, const NumberFormat& format) {
  double number = kNone;
  return parse_number(text, format, &number) ? number : kNone;
}

// pandas.to_numeric has no such rule; the values are those of read_csv(decimal=",").
TEST(NumberFormat, DecimalComma) {
  const NumberFormat comma{",", ""};
  EXPECT_EQ(parse("0,0947", comma), 0.0947);
  EXPECT_EQ(parse("-1,5e3", comma), -1500);
  EXPECT_EQ(parse("+2,5E-1", comma), 0.25);
  EXPECT_EQ(parse(",5", comma), 0.5);
  EXPECT_EQ(parse("7,", comma), 7);
  EXPECT_EQ(parse("12", comma), 12);
  EXPECT_EQ(parse("-3e2", comma), -300);
  for (const char* text : {"", ",", "0.5", "1,2,3", "1,2.3", "1e1,5", "+-1,5", "--1", "1e39", "x"})
    EXPECT_EQ(parse(text, comma), kNone) << text;
}

TEST(NumberFormat, Thousands) {
  const NumberFormat groups{".", ","};
  EXPECT_EQ(parse("1,234,567", groups), 1234567);
  EXPECT_EQ(parse("-12,345.5e-1", groups), -1234.55);
  EXPECT_EQ(parse("1234567.25", groups), 1234567.25);
  EXPECT_EQ(parse("999", groups), 999);
  EXPECT_EQ(parse(".5", groups), 0.5);
  for (const char* text :
       {"12,34", "1,2345", "1234,567", "0,123", ",123", "1,,234", "1,234,", "1.5,000", "1,234,56"})
    EXPECT_EQ(parse(text, groups), kNone) << text;
}

TEST(NumberFormat, BothAndSeparatorsOfSeveralBytes) {
  EXPECT_EQ(parse("1.234.567,5", {",", "."}), 1234567.5);
  EXPECT_EQ(parse("1.5", {",", "."}), kNone);
  EXPECT_EQ(parse("-1\u00A0234,5", {",", "\u00A0"}), -1234.5);
  EXPECT_EQ(parse("1\u202F234\u202F567", {".", "\u202F"}), 1234567);
  EXPECT_EQ(parse("1'234.5", {".", "'"}), 1234.5);
  EXPECT_EQ(parse("1 234", {".", "\u00A0"}), kNone);
  EXPECT_EQ(parse("1.5", {}), 1.5);
  EXPECT_EQ(parse("1,5", {}), kNone);
}

}  // namespace
}  // namespace lockstep::data
