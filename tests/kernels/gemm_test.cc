// The promise of gemm(): every element is one chain of fused multiply-adds in increasing order of
// the depth index. So the tests compare bits, not tolerances, with a triple loop; they would catch
// any other order of summation, a partial sum that is lost or added twice at a block border, an
// element computed from a neighbour's operands, and writes outside of the result.

#include "runtime/cpu/matmul/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "runtime/cpu/matmul/gemm_blocking.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::cpu {
namespace {

using test::Guarded;

struct Extents {
  int64_t rows, columns, depth;
};

// One product with its operands in all four layouts, and the expected bits.
class Case {
 public:
  // `gap`: unused elements at the end of each stored row; `offset`: misalignment in elements.
  Case(Extents size, bool accumulate, int64_t gap, int64_t offset)
      : size_(size), accumulate_(accumulate), gap_(gap), offset_(offset) {
    a_.resize(size.rows * size.depth);
    b_.resize(size.depth * size.columns);
    c_.resize(size.rows * size.columns);
    test::fill_uniform(a_, -1, 1, 1);
    test::fill_uniform(b_, -1, 1, 2);
    test::fill_uniform(c_, -1, 1, 3);
  }

  // The triple loop. Plain x86-64 has no fused multiply-add: there each product is rounded.
  std::vector<float> expected(bool fused) const {
    std::vector<float> result(c_.size(), 0.0f);
    if (accumulate_) result = c_;
    for (int64_t i = 0; i < size_.rows; ++i) {
      for (int64_t k = 0; k < size_.depth; ++k) {
        for (int64_t j = 0; j < size_.columns; ++j) {
          float& sum = result[i * size_.columns + j];
          const float x = a_[i * size_.depth + k], y = b_[k * size_.columns + j];
          sum = fused ? std::fma(x, y, sum) : x * y + sum;
        }
      }
    }
    return result;
  }

  // What gemm() computes. Fails the test if it writes outside of the result or the workspace.
  std::vector<float> computed(bool a_transposed, bool b_transposed) const {
    const auto [rows, columns, depth] = size_;
    const int64_t a_stride = (a_transposed ? rows : depth) + gap_;
    const int64_t b_stride = (b_transposed ? depth : columns) + gap_;
    const int64_t c_stride = columns + gap_;
    // Operands end with their last element, so that the address sanitizer sees reads past them.
    Guarded<float> a(stored_size(a_transposed ? depth : rows, a_transposed ? rows : depth),
                     offset_);
    Guarded<float> b(stored_size(b_transposed ? columns : depth, b_transposed ? depth : columns),
                     offset_);
    Guarded<float> c(stored_size(rows, columns), offset_);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < depth; ++k) {
        a[a_transposed ? k * a_stride + i : i * a_stride + k] = a_[i * depth + k];
      }
    }
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t j = 0; j < columns; ++j) {
        b[b_transposed ? j * b_stride + k : k * b_stride + j] = b_[k * columns + j];
      }
    }
    const float untouched = c.size() > 0 ? c[0] : 0;
    // What is overwritten must not matter, not even when it is NaN.
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        c[i * c_stride + j] = accumulate_ ? c_[i * columns + j] : std::nanf("");
      }
    }
    Guarded<unsigned char> workspace(gemm_workspace_bytes(rows, columns, depth, compute_threads()));
    gemm({.rows = rows,
          .columns = columns,
          .depth = depth,
          .a = {a.data(), a_stride, a_transposed},
          .b = {b.data(), b_stride, b_transposed},
          .c = c.data(),
          .c_stride = c_stride,
          .accumulate = accumulate_},
         workspace.data());
    std::vector<float> result(rows * columns);
    for (int64_t i = 0; i < c.size(); ++i) {
      if (i % c_stride < columns) {
        result[i / c_stride * columns + i % c_stride] = c[i];
      } else {
        EXPECT_EQ(c[i], untouched) << "gemm wrote between the rows of c";
      }
    }
    return result;
  }

  std::string name(bool a_transposed, bool b_transposed) const {
    return std::to_string(size_.rows) + " x " + std::to_string(size_.columns) + " x " +
           std::to_string(size_.depth) + (a_transposed ? " a^T" : " a") +
           (b_transposed ? " b^T" : " b") + (accumulate_ ? " +=" : " =");
  }

 private:
  int64_t stored_size(int64_t rows, int64_t row) const {
    return rows == 0 ? 0 : (rows - 1) * (row + gap_) + row;
  }

  Extents size_;
  bool accumulate_;
  int64_t gap_, offset_;
  std::vector<float> a_, b_, c_;
};

void expect_exact(Extents size, bool accumulate, int64_t gap, int64_t offset) {
  const Case product(size, accumulate, gap, offset);
  const std::vector<float> fused = product.expected(true), plain = product.expected(false);
  test::for_each_target([&](const std::string& target) {
    for (bool a_transposed : {false, true}) {
      for (bool b_transposed : {false, true}) {
        test::expect_same_bits(product.computed(a_transposed, b_transposed),
                               target == "baseline" ? plain : fused,
                               product.name(a_transposed, b_transposed) + " on " + target);
      }
    }
  });
}

TEST(Gemm, EverySmallSizeIsExact) {
  // All combinations around the tile (12 x 32 and 6 x 16), so every partial tile is run.
  for (int64_t rows = 1; rows <= 13; ++rows) {
    for (int64_t columns : {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 49}) {
      expect_exact({rows, columns, 1 + (rows + columns) % 6}, rows % 2 == 0, columns % 3, rows % 4);
    }
  }
}

constexpr int64_t kMoreThanAChunk = column_chunk(kDepthChunk) + 1;  // columns

TEST(Gemm, BlockBordersAreExact) {
  expect_exact({12, 32, 768}, false, 0, 0);   // one whole depth block
  expect_exact({25, 33, 769}, true, 0, 1);    // one more
  expect_exact({40, 65, 50}, true, 5, 3);     // panels packed by the first tile
  expect_exact({20, 40, 1024}, false, 0, 0);  // rows 4 KiB apart are packed
  expect_exact({30, 35, 1537}, false, 0, 0);  // more than a chunk of the depth
  expect_exact({2, kMoreThanAChunk, kDepthChunk}, true, 1, 1);
  expect_exact({265, 34, 768}, false, 0, 2);  // more than a block of rows: panels are kept
  expect_exact({265, 40, 1540}, true, 2, 2);  // and the depth has several blocks and chunks
  expect_exact({210, 230, 41}, false, 2, 2);  // many columns: rows are packed
  expect_exact({510, 600, 20}, false, 1, 0);  // fewer rows at a time, as they are wide
  expect_exact({260, 64, 64}, false, 0, 3);   // of a^T none is packed, though its rows are long
}

TEST(Gemm, ChunksOfColumnsWithKeptPanelsAreExact) {
  if (!test::cpu_has(HWY_AVX2)) GTEST_SKIP() << "this CPU has no fused multiply-add";
  const Case product({max_block_rows(kDepthBlock) + 1, kMoreThanAChunk, kDepthChunk}, false, 0, 0);
  const std::vector<float> expected = product.expected(true);
  test::expect_same_bits(product.computed(false, false), expected, product.name(false, false));
  test::expect_same_bits(product.computed(true, true), expected, product.name(true, true));
}

TEST(Gemm, ThreadsDoNotChangeBits) {
  for (Extents size : {Extents{1, 1, 1},
                       Extents{3, 200, 40},
                       Extents{50, 300, 100},
                       Extents{150, 90, 400},
                       Extents{400, 20, 50},
                       Extents{700, 1500, 20}}) {
    const Case product(size, true, 1, 1);
    for (int threads : {1, 2, 3}) {
      test::ScopedThreads scope(threads);
      for (bool a_transposed : {false, true}) {
        for (bool b_transposed : {false, true}) {
          test::expect_same_bits(
              product.computed(a_transposed, b_transposed),
              product.expected(test::cpu_has(HWY_AVX2)),
              product.name(a_transposed, b_transposed) + " on " + std::to_string(threads));
        }
      }
    }
  }
}

TEST(Gemm, EmptySizes) {
  expect_exact({0, 5, 3}, false, 0, 0);
  expect_exact({5, 0, 3}, false, 0, 0);
  expect_exact({5, 3, 0}, false, 2, 0);  // an empty sum is zero ...
  expect_exact({5, 3, 0}, true, 2, 0);   // ... or what was there
}

TEST(Gemm, NanAndInfinityReachOnlyTheirRowAndColumn) {
  // Rows and columns that pad a tile must not leak into results, nor may zeros hide a NaN.
  const int64_t rows = 17, columns = 35, depth = 9;
  Guarded<float> a(rows * depth), b(depth * columns), c(rows * columns);
  test::fill_uniform(a, -1, 1, 1);
  std::fill(b.begin(), b.end(), 0.0f);
  a[16 * depth + 4] = std::nanf("");
  b[3 * columns + 34] = std::numeric_limits<float>::infinity();
  Guarded<unsigned char> workspace(gemm_workspace_bytes(rows, columns, depth, 1));
  gemm({.rows = rows,
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
      if (i == 16) {
        EXPECT_TRUE(std::isnan(value)) << i << ", " << j;
      } else if (j == 34) {
        EXPECT_TRUE(std::isinf(value)) << i << ", " << j;
      } else {
        EXPECT_EQ(value, 0.0f) << i << ", " << j;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::cpu
