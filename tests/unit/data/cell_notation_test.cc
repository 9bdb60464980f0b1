// Catches cells whose notation is not recognised, and categories that are taken for numbers.
#include "runtime/data/tables/cell_notation.h"

#include <gtest/gtest.h>

#include <vector>

#include "files.h"

namespace lockstep::data {
namespace {

using Cells = std::vector<std::string>;

struct Case {
  Cells cells;
  std::string what, remedy;
  NumberFormat format{};
};

TEST(CellNotation, NumbersInAnotherNotation) {
  const Case cases[] = {
      {{"0,0947", "-1,8", "3"}, "a decimal comma", R"(data.table.decimal: ",")"},
      {{"0.5", "-1.8"}, "a decimal point", R"(data.table.decimal: ".")", {",", ""}},
      {{"1,234", "999", "1,234,567"}, R"(separated by ",")", R"(data.table.thousands: ",")"},
      {{"7,500", "6,984"}, "thousands", R"(or data.table.decimal: ",", if it begins)"},
      {{"1.234,50", "99,00"},
       "a decimal comma and thousands",
       R"(decimal: "," and data.table.thousands: ".")"},
      {{"1 234,5", "2 000,0"}, "thousands", R"(thousands: " ")"},
      {{"1\u00A0234", "2\u00A0000"}, "thousands", R"(thousands: "\u00A0")"},
      {{"1'234.5", "2'000"}, "thousands", R"(thousands: "'")"},
      {{"$100.95", "-$5", "$1"}, "amounts of money", "delete '$' from the cells"},
      {{"$1,234.50", "$99.00"}, "amounts of money", R"(set data.table.thousands: ",")"},
      {{"1.234,50 €", "5,00 €"},
       "amounts of money",
       R"(decimal: "," and data.table.thousands: ".")"},
      {{"CHF 5", "CHF 7.50"}, "amounts of money", "delete 'CHF'"},
      {{"€5", "$7.50", "€1"},
       "amounts of money",
       "convert them to one currency and delete '$', '€'"},
      {{"5-", "7.5", "300-"}, "'-' after them", "write '-' before negative numbers"},
      {{"6,403E+02", "1,5E+00"}, "a decimal comma", R"(data.table.decimal: ",")"},
      {{"1", "2", "3", "inf"}, "beyond float32", "remove these rows"},
      {{"12.5%", "100 %"}, "percentages", "delete '%'"},
      {{"12 kg", "3.5 kg", "7 kg"}, "numbers with a unit", "delete 'kg'"},
      {{"\u22125", "3"}, "the minus sign U+2212", "'-'"},
      {{"(1,200)", "300"}, "negative numbers in brackets", R"(data.table.thousands: ",")"},
      {{"<0.1", "2", "3"}, "numbers with a mark", "delete '<'"},
      {{"1", "2", "3", "#DIV/0!", "missing"}, "except", R"(["", "#DIV/0!", "missing"])"},
      {{"5\u00A0", "\t7"}, "white space", "delete"},
      {{"'0.5'", "'-3'"}, "quotes", "delete"},
      {{"=\"0.5\"", "=\"7\""}, "quotes", "delete"},
      {{"0x1F", "0xA0"}, "hexadecimal", "decimal"},
      {{"1_000", "2_000"}, "thousands", R"("_")"},
      {{"1e99", "-1e99"}, "beyond float32", "scale"},
  };
  for (const Case& c : cases) {
    const CellNotation notation = notation_of(c.cells, c.format);
    SCOPED_TRACE(c.cells[0]);
    test::expect_parts(notation.what, {c.what});
    test::expect_parts(notation.remedy, {c.remedy});
    EXPECT_EQ(notation.is_number,
              c.what != "numbers with a unit" && c.what != "numbers with a mark");
  }
}

TEST(CellNotation, OtherKinds) {
  const Case cases[] = {
      {{"2024-01-31", "2024-02-01"}, "dates", "days"},
      {{"cust-00000", "cust-07919"}, "ids", ""},
      {{"0", "1", "2"}, "ids", ""},
      {{"123e4567-e89b-12d3-a456-426614174000", "00000000-e89b-12d3-a456-426614174001"}, "ids", ""},
      {{"d41d8cd98f00b204", "9e107d9d372bb682"}, "ids", ""},
      {{"anna@example.org", "bert@example.org"}, "ids", ""},
      {{"it was a fine day", "and so to bed"}, "texts", ""},
      {{"10-20", "20-35"}, "pairs", "column"},
      {{"52.5, 13.4", "-1, 2"}, "pairs", "column"},
      {{"3 kg", "5 g"}, "numbers with a unit", "convert them to one unit and delete 'g', 'kg'"},
      {{"1.5M", "2M"}, "numbers with a unit", "convert them to one unit"},
      {{"[1, 2]", "[3, 4]"}, "lists", "column"},
      {{"red", "blue", "green"}, "", ""},
      {{"1", "2", "red", "blue"}, "", ""},
      {{"1", "-"}, "", ""},
      {{"+1 (555) 010-0000", "+1 (555) 010-0001"}, "", ""},
  };
  for (const Case& c : cases) {
    const CellNotation notation = notation_of(c.cells, c.format);
    SCOPED_TRACE(c.cells[0]);
    EXPECT_EQ(notation.what.empty(), c.what.empty());
    test::expect_parts(notation.what, {c.what});
    test::expect_parts(notation.remedy, {c.remedy});
    EXPECT_FALSE(notation.is_number);
  }
}

TEST(CellNotation, DatesAndTimes) {
  for (const char* cell : {"2024-01-31",
                           "31/01/2024",
                           "1/31/24",
                           "01.02.2024",
                           "01.02.24",
                           "2024/01/31",
                           "2024-01-31T12:30:05Z",
                           "2024-01-31 12:30:05.123456+01:00",
                           "12:30:05",
                           "12:30",
                           "9:05 PM",
                           "Jan 5, 2024",
                           "5-Jan-2024",
                           "Wed, 31 Jan 2024 10:00:00 GMT",
                           "2024-01",
                           "20240131T123005"})
    EXPECT_TRUE(is_date_or_time(cell)) << cell;
  for (const char* cell : {"",
                           "12",
                           "20240131",
                           "1.5",
                           "192.168.1.1",
                           "1.2.3",
                           "10-20",
                           "1/2",
                           "cust-00000",
                           "12 kg",
                           "3:1",
                           "2024",
                           "-5",
                           "a/b/c",
                           "1e5",
                           "$12:30"})
    EXPECT_FALSE(is_date_or_time(cell)) << cell;
}

}  // namespace
}  // namespace lockstep::data
