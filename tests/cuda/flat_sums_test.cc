// Catches: elements lost at the end of an array or where it is misaligned, a tree of sums in
// another order than the CPU's, more partial sums than the plan has room for.

#include "runtime/cpu/flat/content_hash.h"
#include "runtime/cpu/flat/squares.h"
#include "runtime/cuda/flat/add_rows.h"
#include "runtime/cuda/flat/bit_checksum.h"
#include "runtime/cuda/flat/column_sum.h"
#include "runtime/cuda/flat/content_hash.h"
#include "runtime/cuda/flat/squares.h"
#include "runtime/cuda/ops/cast.h"
#include "tests/fibers/kernel_test.h"

namespace lockstep::test {
namespace {

template <typename T>
class CudaFlatSumsTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaFlatSumsTest, StoredTypes);

TYPED_TEST(CudaFlatSumsTest, WidensExactly) {
  using T = TypeParam;
  for (int64_t n : {1, 7, 2048}) {
    for (bool accumulate : {false, true}) {
      Guarded<T> from(n);
      Guarded<float> to(n);
      test::fill_stored(from, -1, 1, 1);
      test::fill_uniform(to, -3, 3, 2);
      std::vector<float> expected = to.copy();
      for (int64_t i = 0; i < n; ++i) {
        float& sum = expected[static_cast<size_t>(i)];
        sum = (accumulate ? sum : 0.0f) + to_float(from[i]);
      }
      cuda::widen<T>(from.data(), accumulate, to.data(), n, nullptr);
      EXPECT_EQ(test::bytes_of(expected), test::bytes_of(to)) << n;
    }
  }
}

TYPED_TEST(CudaFlatSumsTest, ColumnSumMatchesDoublePrecisionInAnyOrder) {
  using T = TypeParam;
  struct Sizes {
    int64_t rows, columns, stride;
    int multiprocessors = 3;
  };
  for (const Sizes& sizes :
       std::vector<Sizes>{{1, 1, 1},
                          {5, 33, 33},
                          {5, 33, 40, 132},
                          {70, 64, 64},
                          {70, 64, 67},
                          {301, 1032, 1040, 1},
                          {301, 1032, 1040, 4},
                          {4200, 3, 8},
                          {9000, 16, 16, 1000}}) {  // more than are planned for
    test::for_each_order([&](const std::string& order) {
      const auto [rows, columns, stride, multiprocessors] = sizes;
      Guarded<T> x(rows * stride);
      Guarded<float> out(columns),
          workspace(static_cast<int64_t>(cuda::column_sum_workspace_bytes(rows, columns) / 4));
      test::fill_stored(x, -1, 1, 1);
      test::fill_uniform(out, -1, 1, 2);
      std::vector<double> expected = test::to_double(out);
      for (int64_t i = 0; i < rows * columns; ++i)
        expected[static_cast<size_t>(i % columns)] +=
            to_float(x[i / columns * stride + i % columns]);
      cuda::column_sum<T>(x.data(),
                          rows,
                          columns,
                          stride,
                          true,
                          out.data(),
                          workspace.data(),
                          {.multiprocessors = multiprocessors});
      test::expect_close(out, expected, kEps * static_cast<double>(rows + 4), "sum, " + order);
      return test::bytes_of(out);
    });
  }
}

// Each row in order, with the same number several times in a tile of the numbers and across tiles;
// only to the part, which ends within rows.
TYPED_TEST(CudaFlatSumsTest, AddsEachRowInOrderToThePart) {
  using T = TypeParam;
  constexpr int64_t kTableRows = 23, kCount = 300;
  constexpr DType kType = std::is_same_v<T, float>      ? DType::kF32
                          : std::is_same_v<T, BFloat16> ? DType::kBF16
                                                        : DType::kF16;
  for (const int64_t columns : {1, 16, 40, 257}) {
    const int64_t elements = kTableRows * columns;
    Guarded<T> rows(kCount * columns);
    Guarded<int32_t> ids(kCount);
    test::fill_stored(rows, -1, 1, 1);
    for (int64_t i = 0; i < kCount; ++i) ids[i] = static_cast<int32_t>(i * i * 7 % kTableRows);
    for (const auto& [begin, end] : {std::pair(int64_t{0}, elements), {64, elements}, {0, 64}}) {
      if (begin >= end || end > elements) continue;
      test::for_each_order([&, begin = begin, end = end](const std::string& order) {
        Guarded<float> table(end - begin);
        test::fill_uniform(table, -1, 1, 2);
        std::vector<float> expected = table.copy();
        for (int64_t i = 0; i < kCount * columns; ++i) {
          const int64_t element = ids[i / columns] * columns + i % columns;
          if (begin <= element && element < end)
            expected[static_cast<size_t>(element - begin)] += to_float(rows[i]);
        }
        cuda::add_rows({.ids = ids.data(),
                        .rows = reinterpret_cast<const std::byte*>(rows.data()),
                        .dtype = kType,
                        .count = kCount,
                        .columns = columns},
                       begin,
                       end,
                       table.data(),
                       nullptr);
        EXPECT_EQ(test::bytes_of(expected), test::bytes_of(table)) << columns << ", " << order;
        return test::bytes_of(table);
      });
    }
  }
}

// From one block to more blocks than there are sums to keep, from the end of a chunk to its middle.
TEST(CudaSumTest, SquaresHaveTheBitsOfTheCpuInAnyOrder) {
  for (int64_t n : {0, 1, 64, 100, 16384, 16385, 50001}) {
    for (int64_t offset : {0, 1}) {
      test::for_each_order([&](const std::string& order) {
        Guarded<float> x(n, offset);
        test::fill_all_sizes(x, static_cast<uint64_t>(n));
        ExactSum expected, sum;
        std::vector<ExactSum> workspace(cuda::kSquaresBlocks);
        for (const int64_t count : {n, n / 2}) {
          cpu::add_squares(x.data(), count, &expected);
          cuda::add_squares(x.data(), count, workspace.data(), &sum, nullptr);
        }
        EXPECT_EQ(sum, expected) << n << ", " << order;
        return test::bytes_of(std::vector<ExactSum>{sum});
      });
    }
  }
}

TEST(CudaSumTest, SquaresOfManyBlocks) {
  const int64_t n = (cuda::kSquaresBlocks + 3) * cuda::kSquaresBlock + 77;
  std::vector<float> x(static_cast<size_t>(n));
  test::fill_uniform(x, -1, 1, 1);
  ExactSum expected, sum;
  std::vector<ExactSum> workspace(cuda::kSquaresBlocks);
  cpu::add_squares(x.data(), n, &expected);
  cuda::add_squares(x.data(), n, workspace.data(), &sum, nullptr);
  EXPECT_EQ(sum, expected);
}

// Of one block, of some, and of more elements than blocks take at once; added to what is there.
TEST(CudaSumTest, BitsAreThoseOfTheCpu) {
  for (int64_t n : {0, 1, 255, 4097, 1000003}) {
    std::vector<float> x(static_cast<size_t>(n));
    test::fill_uniform(x, -1, 1, 3);
    std::vector<uint32_t> workspace(cuda::kBitChecksumBlocks);
    uint32_t sum = 7;
    cuda::add_bits(reinterpret_cast<const uint32_t*>(x.data()), n, workspace.data(), &sum, nullptr);
    EXPECT_EQ(sum, 7 + cpu::bit_checksum(x.data(), n)) << n;
    uint32_t of_halves = 0;
    const auto* const halves = reinterpret_cast<const uint16_t*>(x.data());
    cuda::add_bits(halves, 2 * n, workspace.data(), &of_halves, nullptr);
    uint32_t expected = 0;
    for (int64_t i = 0; i < 2 * n; ++i) expected += halves[i];
    EXPECT_EQ(of_halves, expected) << n;
  }
}

TEST(CudaSumTest, SquaresThatAreNotFiniteShow) {
  std::vector<float> x(200, 1);
  ExactSum sum;
  x[130] = -std::numeric_limits<float>::infinity();
  cuda::add_squares(x.data(), 200, nullptr, &sum, nullptr);
  EXPECT_EQ(sum.value(), std::numeric_limits<double>::infinity());
  x[3] = std::numeric_limits<float>::quiet_NaN();
  cuda::add_squares(x.data(), 200, nullptr, &sum, nullptr);
  EXPECT_TRUE(std::isnan(sum.value()));
}

// The hash of a slice is that of the CPU, and slices add up to the whole.
TYPED_TEST(CudaFlatSumsTest, ContentHashIsThatOfTheCpu) {
  using T = TypeParam;
  for (int64_t n : {1, 7, 1000, 70003}) {
    for (int64_t offset : {0, 1}) {
      Guarded<T> x(n, offset);
      test::fill_stored(x, -1, 1, 5);
      if (n > 100) x[100] = round_to<T>(std::numeric_limits<float>::infinity());
      if (n > 100) x[n - 1] = round_to<T>(std::numeric_limits<float>::quiet_NaN());
      std::vector<float> wide;
      for (int64_t i = 0; i < n; ++i) wide.push_back(to_float(x[i]));
      std::vector<ContentHash> workspace(cuda::kHashBlocks);
      const auto hash = [&](int64_t begin, int64_t end) {
        ContentHash out{1, 1};
        cuda::content_hash<T>(x.data() + begin,
                              end - begin,
                              10 + static_cast<uint64_t>(begin),
                              workspace.data(),
                              &out,
                              nullptr);
        return out;
      };
      const ContentHash expected = cpu::content_hash(wide.data(), n, 10), whole = hash(0, n);
      EXPECT_EQ(whole.sum, expected.sum) << n;
      EXPECT_EQ(whole.not_finite, expected.not_finite) << n;
      EXPECT_EQ(whole.not_finite, n > 100 ? 2u : 0u);
      if (n < 3) continue;
      const ContentHash left = hash(0, n / 3), right = hash(n / 3, n);
      EXPECT_EQ(left.sum + right.sum, whole.sum);
      std::swap(wide[0], wide[1]);  // the same numbers elsewhere are another content
      EXPECT_NE(cpu::content_hash(wide.data(), n, 10).sum, whole.sum);
    }
  }
}

}  // namespace
}  // namespace lockstep::test
