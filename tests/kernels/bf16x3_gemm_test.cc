// Matrix products on bfloat16 matrix units against a scalar loop, bit for bit. They would catch
// sums lost or added twice at the border of a block, operands taken the wrong way round, bits that
// depend on threads, on the instruction set or on where an element lies, and memory read behind
// operands or written beside results.

#include "runtime/cpu/matmul/bf16x3_gemm.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cpu/matmul/bf16x3_product.h"
#include "tests/kernels/bf16x3_cases.h"

namespace lockstep::cpu {
namespace {

using test::kAllSizes;

// All layouts on the widest instruction set, and one on each of the others, which are slow.
void expect_exact(
    Size size, bool accumulate, int64_t gap, int64_t offset, Sizes sizes = Sizes::kUniform) {
  const Product product(size, accumulate, gap, offset, sizes);
  const std::vector<float> expected = product.expected();
  bool widest = true;
  test::for_each_target_of(sizes, [&](const std::string& target) {
    for (int64_t layout = 0; layout < 4; ++layout) {
      if (!widest && layout != (size.rows + size.columns) % 4) continue;
      const bool a_transposed = layout / 2 == 1, b_transposed = layout % 2 == 1;
      test::expect_same_numbers(product.of_gemm(a_transposed, b_transposed),
                                expected,
                                product.name(a_transposed, b_transposed) + " on " + target);
    }
    widest = false;
  });
}

// Compares a sample with the scalar loop, and all with what the same operands give in other
// layouts.
void expect_exact_sample(Size size, bool accumulate) {
  const Product product(size, accumulate, 3, 1, Sizes::kUniform);
  const std::vector<float> result = product.of_gemm(false, false);
  const auto check = [&](int64_t i, int64_t j) {
    const float expected = product.expected(i, j), actual = result[i * size.columns + j];
    ASSERT_TRUE(test::same_number(actual, expected))
        << product.name() << " at " << i << ", " << j << " is " << actual << ", not " << expected;
  };
  for (int64_t i = 0; i < size.rows; i += i % 32 == 0 ? 31 : 1) {
    check(i, (i * 67) % size.columns);
    check(i, size.columns - 1);
  }
  for (int64_t j = 0; j < size.columns; j += j % 32 == 0 ? 31 : 1) {
    check((j * 67) % size.rows, j);
    check(size.rows - 1, j);
  }
  for (bool b_transposed : {false, true}) {
    test::expect_same_numbers(
        product.of_gemm(true, b_transposed), result, product.name(true, b_transposed));
  }
}

TEST(Bf16x3Gemm, EverySmallSizeIsExact) {
  // Around a tile (16 x 16 x 32) and a pair of them, so that every partial tile is run: a seventh
  // of all combinations, which has every pair.
  constexpr int64_t kEdges[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65};
  int64_t number = 0;
  for (int64_t rows : kEdges) {
    for (int64_t columns : kEdges) {
      for (int64_t depth : kEdges) {
        if (++number % 7 != 0) continue;
        expect_exact({rows, columns, depth}, number % 2 == 0, number % 5, number % 4);
      }
    }
  }
}

TEST_F(Bf16x3Fused, NumbersOfEverySizeAreExact) {
  // Denormal numbers, infinities and NaN in the operands and in what is added to.
  for (Sizes sizes : {Sizes::kTiny, Sizes::kAll, Sizes::kSomeBits}) {
    for (Size size : {Size{17, 35, 9}, Size{33, 16, 70}, Size{40, 47, 1}}) {
      for (bool accumulate : {false, true}) expect_exact(size, accumulate, 1, 2, sizes);
    }
  }
}

TEST(Bf16x3Gemm, BlocksAreExact) {
  static_assert(kSplitBlockChunks == 16 && kSplitKeptChunks == 48 && kSplitKeptColumns == 1024);
  ASSERT_EQ(max_row_units<float>(16), 7);         // 224 rows
  expect_exact_sample({224, 40, 512}, false);     // one whole block
  expect_exact_sample({225, 40, 512}, true);      // one row more: panels are kept
  expect_exact_sample({470, 33, 512}, false);     // three of these
  expect_exact_sample({470, 33, 530}, false);     // several blocks of the rows and the depth
  expect_exact_sample({770, 20, 33}, true);       // as many rows as a block may have, and two
  expect_exact_sample({3, 20, 1570}, false);      // more than the depth of kept panels
  expect_exact_sample({5, 1056, 40}, true);       // more columns than are kept, but none is
  expect_exact_sample({239, 1041, 1600}, false);  // all of these
}

TEST(Bf16x3Gemm, ThreadsDoNotChangeBits) {
  // Catches rows or columns that two workers compute, or none, and scratch memory that they share.
  for (int threads : {1, 2, 3}) {
    test::ScopedThreads scope(threads);
    expect_exact({1, 1, 1}, true, 1, 1);
    expect_exact({3, 100, 40}, true, 1, 1);
    expect_exact({40, 70, 40}, true, 1, 1);
    expect_exact({100, 20, 33}, true, 1, 1);
    expect_exact_sample({700, 40, 512}, true);  // several blocks of rows for each worker
  }
}

TEST(Bf16x3Gemm, EmptySizes) {
  expect_exact({0, 5, 3}, false, 0, 0);
  expect_exact({5, 0, 3}, false, 0, 0);
  expect_exact({5, 3, 0}, false, 2, 0);  // an empty sum is zero ...
  expect_exact({5, 3, 0}, true, 2, 0);   // ... or what was there
}

TEST(Bf16x3Gemm, NanAndInfinityReachOnlyTheirRowAndColumn) {
  // Rows and columns that pad a tile must not leak into results, nor may zeros hide a NaN; and
  // infinity has parts that are NaN.
  const int64_t rows = 17, columns = 35, depth = 9;
  Guarded<float> a(rows * depth), b(depth * columns), c(rows * columns);
  test::fill_uniform(a, -1, 1, 1);
  std::fill(b.begin(), b.end(), 0.0f);
  a[16 * depth + 4] = std::nanf("");
  b[3 * columns + 34] = std::numeric_limits<float>::infinity();
  b[5 * columns + 33] = std::numeric_limits<float>::max();
  Guarded<unsigned char> workspace(bf16x3::gemm_workspace_bytes(rows, columns, depth, 1));
  test::ScopedThreads one(1);
  bf16x3::gemm({.rows = rows,
                .columns = columns,
                .depth = depth,
                .a = {a.data(), depth},
                .b = {b.data(), columns},
                .c = c.data(),
                .c_stride = columns},
               workspace.data());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const float value = c[i * columns + j];
      if (i == 16 || j >= 33) {
        EXPECT_TRUE(std::isnan(value)) << i << ", " << j;
      } else {
        EXPECT_EQ(value, 0.0f) << i << ", " << j;
      }
    }
  }
}

// Floats behind which lies a page that cannot be read.
class BeforePage {
 public:
  explicit BeforePage(int64_t n) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(n) * sizeof(float);
    const size_t readable = (bytes + page - 1) / page * page;
    bytes_ = readable + page;
    base_ = static_cast<char*>(
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || ::mprotect(base_ + readable, page, PROT_NONE) != 0) std::abort();
    data_ = reinterpret_cast<float*>(base_ + readable - bytes);
  }
  BeforePage(const BeforePage&) = delete;
  BeforePage& operator=(const BeforePage&) = delete;
  ~BeforePage() { ::munmap(base_, bytes_); }
  float* data() { return data_; }

 private:
  char* base_;
  size_t bytes_;
  float* data_;
};

TEST(Bf16x3Gemm, NothingIsReadBehindOperands) {
  // A kernel that loads whole vectors and drops what it does not want crashes here.
  for (Size size : {Size{1, 1, 1}, Size{17, 19, 37}, Size{16, 16, 33}, Size{35, 50, 31}}) {
    for (bool a_transposed : {false, true}) {
      for (bool b_transposed : {false, true}) {
        const auto [rows, columns, depth] = size;
        BeforePage a(rows * depth), b(depth * columns), c(rows * columns);
        std::fill_n(a.data(), rows * depth, 1.0f);
        std::fill_n(b.data(), depth * columns, 1.0f);
        Guarded<unsigned char> workspace(
            bf16x3::gemm_workspace_bytes(rows, columns, depth, compute_threads()));
        bf16x3::gemm({.rows = rows,
                      .columns = columns,
                      .depth = depth,
                      .a = {a.data(), a_transposed ? rows : depth, a_transposed},
                      .b = {b.data(), b_transposed ? depth : columns, b_transposed},
                      .c = c.data(),
                      .c_stride = columns},
                     workspace.data());
        EXPECT_EQ(c.data()[rows * columns - 1], static_cast<float>(depth));
      }
    }
  }
}

TEST(Bf16x3Gemm, IsAsAccurateAsFloats) {
  // Fewer pairs of parts, or a split that loses bits, would give a larger error than the chain of
  // gemm().
  const int64_t rows = 256, columns = 256, depth = 2048;
  Guarded<float> a(rows * depth), b(depth * columns), split(rows * columns), plain(rows * columns);
  test::fill_uniform(a, -1, 1, 1);
  test::fill_uniform(b, -1, 1, 2);
  std::vector<double> exact(rows * columns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t k = 0; k < depth; ++k) {
      const double x = a[i * depth + k];
      const float* const row = b.data() + k * columns;
      double* const sums = exact.data() + i * columns;
      for (int64_t j = 0; j < columns; ++j) sums[j] += x * row[j];
    }
  }
  Gemm product = {.rows = rows,
                  .columns = columns,
                  .depth = depth,
                  .a = {a.data(), depth},
                  .b = {b.data(), columns},
                  .c = split.data(),
                  .c_stride = columns};
  const int threads = compute_threads();
  Guarded<unsigned char> workspace(
      std::max(gemm_workspace_bytes(rows, columns, depth, threads),
               bf16x3::gemm_workspace_bytes(rows, columns, depth, threads)));
  bf16x3::gemm(product, workspace.data());
  product.c = plain.data();
  gemm(product, workspace.data());
  double split_error = 0, plain_error = 0;
  for (int64_t i = 0; i < rows * columns; ++i) {
    split_error += std::pow(split[i] - exact[i], 2);
    plain_error += std::pow(plain[i] - exact[i], 2);
  }
  EXPECT_LE(std::sqrt(split_error), 1.0 * std::sqrt(plain_error));
  RecordProperty("ratio", std::to_string(std::sqrt(split_error / plain_error)));
}

}  // namespace
}  // namespace lockstep::cpu
