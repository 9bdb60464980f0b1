// Catches names of columns that look the same and are taken as different, and the reverse.
#include "runtime/data/tables/column_names.h"

#include <gtest/gtest.h>

#include "files.h"

namespace lockstep::data {
namespace {

TEST(ColumnNames, OneKeyForNamesThatLookTheSame) {
  const std::string composed = "gr\u00F6\u00DFe", decomposed = "gro\u0308\u00DFe";
  EXPECT_EQ(column_key(decomposed), column_key(composed));
  EXPECT_EQ(column_key("\uFEFF\u00A0y \t"), "y");
  EXPECT_EQ(column_key("unit\u00A0price"), "unit price");
  EXPECT_EQ(column_key("\u200B "), "");
  EXPECT_NE(column_key("y"), column_key("Y"));
  EXPECT_EQ(column_key("\xF6"), "\xF6");  // not UTF-8
  EXPECT_EQ(find_name("t.csv", {"a", decomposed}, composed), 1u);
  EXPECT_EQ(find_name("t.csv", {"a", "b"}, composed), std::nullopt);
}

TEST(ColumnNames, EqualNamesAreSpelledOut) {
  test::expect_parts(test::error_of([] {
                       check_unique("t.csv", {"gr\u00F6n", "x", "gro\u0308n"});
                     }),
                     {"t.csv: columns 0 and 2", "look the same", "U+00F6", "U+006F U+0308"});
  test::expect_parts(test::error_of([] { check_unique("t.csv", {"y", "y\u00A0"}); }), {"U+00A0"});
  EXPECT_NO_THROW(check_unique("t.csv", {"", "a", ""}));
}

TEST(ColumnNames, NamesOfIds) {
  for (const char* name : {"id",
                           "ID",
                           "index",
                           "PassengerId",
                           "customer_id",
                           "row id",
                           "RowNumber",
                           "Unnamed: 0",
                           "car_ID",
                           "Serial No.",
                           "#"})
    EXPECT_TRUE(is_id_name(name)) << name;
  for (const char* name : {"x", "paid", "grid", "humid", "valid", "rows", "number of rooms", "d"})
    EXPECT_FALSE(is_id_name(name)) << name;
}

TEST(ColumnNames, CellsAreCutBetweenLetters) {
  EXPECT_EQ(quote_cell(fmt::format("{:a>39}{}", "", "\u00F6\u00F6")),
            "'" + std::string(39, 'a') + "...'");
}

}  // namespace
}  // namespace lockstep::data
