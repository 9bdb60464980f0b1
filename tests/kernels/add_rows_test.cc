// Catches: rows that are added in another order, or to elements outside of the part.
#include "runtime/cpu/flat/add_rows.h"

#include <cstring>

#include "tests/reference/kernel_test.h"

namespace lockstep::test {
namespace {

TEST(AddRowsTest, AddsEachRowInOrderToThePart) {
  constexpr int64_t kTableRows = 50, kCount = 300;
  for (const int64_t columns : {1, 16, 40, 257}) {
    const int64_t elements = kTableRows * columns;
    Guarded<float> rows(kCount * columns);
    test::fill_all_sizes(rows, 1);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kCount; ++i)
      ids.push_back(static_cast<int32_t>(i * i * 7 % kTableRows));
    for (const auto& [begin, end] : {std::pair(int64_t{0}, elements), {64, elements}, {0, 64}}) {
      if (begin >= end || end > elements) continue;
      Guarded<float> table(end - begin);
      test::fill_uniform(table, -1, 1, 2);
      std::vector<float> expected = table.copy();
      for (int64_t i = 0; i < kCount * columns; ++i) {
        const int64_t element = ids[static_cast<size_t>(i / columns)] * columns + i % columns;
        if (begin <= element && element < end)
          expected[static_cast<size_t>(element - begin)] += rows[i];
      }
      cpu::add_rows({.ids = ids.data(),
                     .rows = reinterpret_cast<const std::byte*>(rows.data()),
                     .count = kCount,
                     .columns = columns},
                    begin,
                    end,
                    table.data());
      EXPECT_EQ(std::memcmp(expected.data(), table.data(), expected.size() * sizeof(float)), 0)
          << columns << " from " << begin;
    }
  }
}

}  // namespace
}  // namespace lockstep::test
