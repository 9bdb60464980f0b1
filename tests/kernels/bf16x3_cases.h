#pragma once
// What the tests of products on bfloat16 matrix units share.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "runtime/cpu/matmul/bf16x3.h"
#include "runtime/cpu/matmul/bf16x3_gemm.h"
#include "tests/reference/bf16x3.h"
#include "tests/reference/kernel_test.h"

namespace lockstep::cpu {

using test::Guarded;
using test::Sizes;
using test::SplitFloat;

// Tests of numbers whose products plain x86-64 flushes to zero too early.
class Bf16x3Fused : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::cpu_has(HWY_AVX2)) GTEST_SKIP() << "skipped: no fused multiply-add on this CPU";
  }
};
inline float from_bf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
inline uint16_t to_bits(float bf16) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(bf16) >> 16);
}

// Where a tile keeps a part: of row `edge` of A, or column `edge` of B, at depth k.
inline int64_t place_in_tile(bool of_b, int64_t part, int64_t edge, int64_t k) {
  return part * 512 + (of_b ? k / 2 * 32 + edge * 2 + k % 2 : edge * 32 + k);
}

inline void put_in_tile(const SplitFloat& x, bool of_b, int64_t edge, int64_t k, uint16_t* tile) {
  for (int64_t part = 0; part < kTileParts; ++part)
    tile[place_in_tile(of_b, part, edge, k)] = to_bits(x.part[part]);
}
struct Size {
  int64_t rows, columns, depth;
};

// A matrix as it is stored: perhaps transposed, misaligned and with unused elements between its
// rows, but none behind the last.
class Stored {
 public:
  Stored(
      const std::vector<float>& values, int64_t rows, bool transposed, int64_t gap, int64_t offset)
      : rows_(rows),
        columns_(rows == 0 ? 0 : static_cast<int64_t>(values.size()) / rows),
        transposed_(transposed),
        row_(transposed ? rows_ : columns_),
        stride_(row_ + gap),
        data_(values.empty() ? 0 : ((transposed ? columns_ : rows_) - 1) * stride_ + row_, offset) {
    for (int64_t i = 0; i < rows_ * columns_; ++i) data_[place(i)] = values[i];
  }

  GemmOperand operand() const { return {data_.data(), stride_, transposed_}; }
  float* data() { return data_.data(); }
  int64_t stride() const { return stride_; }

  // Fails the test if something was written between the rows.
  std::vector<float> values() const {
    for (int64_t i = 0; i < data_.size(); ++i) {
      if (i % stride_ < row_) continue;
      EXPECT_EQ(std::bit_cast<uint32_t>(data_[i]), 0xa5a5a5a5u) << "written between rows";
    }
    std::vector<float> values(rows_ * columns_);
    for (int64_t i = 0; i < rows_ * columns_; ++i) values[i] = data_[place(i)];
    return values;
  }

 private:
  int64_t place(int64_t i) const {
    const int64_t row = i / columns_, column = i % columns_;
    return transposed_ ? column * stride_ + row : row * stride_ + column;
  }

  int64_t rows_, columns_;
  bool transposed_;
  int64_t row_, stride_;
  Guarded<float> data_;
};

// One product. `gap`: unused elements between the rows of matrices; `offset`: their misalignment in
// elements.
class Product {
 public:
  Product(Size size, bool accumulate, int64_t gap, int64_t offset, Sizes sizes)
      : size_(size),
        accumulate_(accumulate),
        gap_(gap),
        offset_(offset),
        a_(size.rows * size.depth),
        b_(size.depth * size.columns),
        c_(size.rows * size.columns) {
    test::fill_sizes(a_, sizes, 1);
    test::fill_sizes(b_, sizes, 2);
    test::fill_sizes(c_, sizes, 3);
    split_a_.assign(a_.begin(), a_.end());
    split_b_.assign(b_.begin(), b_.end());
  }

  float expected(int64_t i, int64_t j) const {
    return test::bf16x3_dot(
        size_.depth,
        [&](int64_t k) { return split_a_[i * size_.depth + k]; },
        [&](int64_t k) { return split_b_[k * size_.columns + j]; },
        accumulate_ ? c_[i * size_.columns + j] : 0.0f);
  }

  std::vector<float> expected() const {
    std::vector<float> result;
    for (int64_t i = 0; i < size_.rows; ++i) {
      for (int64_t j = 0; j < size_.columns; ++j) result.push_back(expected(i, j));
    }
    return result;
  }

  // What multiply() computes of whole tiles, `a_gap` elements between those of each row of tiles.
  std::vector<float> of_tiles(const Bf16x3Kernels& kernels, int64_t a_gap) const {
    const auto [rows, columns, depth] = size_;
    const int64_t a_stride = depth / kTileDepth * kSplitElems + a_gap;
    Guarded<uint16_t> a(rows / kTileEdge * a_stride), b(columns * depth * kTileParts);
    for (int64_t k = 0; k < depth; ++k) {
      for (int64_t i = 0; i < rows; ++i) {
        uint16_t* const tile = a.data() + i / 16 * a_stride + k / 32 * kSplitElems;
        put_in_tile(split_a_[i * depth + k], false, i % 16, k % 32, tile);
      }
      for (int64_t j = 0; j < columns; ++j) {
        uint16_t* const tile = b.data() + (k / 32 * (columns / 16) + j / 16) * kSplitElems;
        put_in_tile(split_b_[k * columns + j], true, j % 16, k % 32, tile);
      }
    }
    Stored c(initial(), rows, false, gap_, offset_);
    kernels.multiply({.row_tiles = rows / kTileEdge,
                      .column_tiles = columns / kTileEdge,
                      .chunks = depth / kTileDepth,
                      .a = a.data(),
                      .a_stride = a_stride,
                      .b = b.data(),
                      .c = c.data(),
                      .c_stride = c.stride(),
                      .accumulate = accumulate_});
    return c.values();
  }

  // What gemm() computes.
  std::vector<float> of_gemm(bool a_transposed, bool b_transposed) const {
    const auto [rows, columns, depth] = size_;
    const Stored a(a_, rows, a_transposed, gap_, offset_);
    const Stored b(b_, depth, b_transposed, gap_, offset_);
    Stored c(initial(), rows, false, gap_, offset_);
    Guarded<unsigned char> workspace(
        bf16x3::gemm_workspace_bytes(rows, columns, depth, compute_threads()));
    bf16x3::gemm({.rows = rows,
                  .columns = columns,
                  .depth = depth,
                  .a = a.operand(),
                  .b = b.operand(),
                  .c = c.data(),
                  .c_stride = c.stride(),
                  .accumulate = accumulate_},
                 workspace.data());
    return c.values();
  }

  std::string name() const {
    return std::to_string(size_.rows) + " x " + std::to_string(size_.columns) + " x " +
           std::to_string(size_.depth) + (accumulate_ ? " +=" : " =");
  }
  std::string name(bool a_transposed, bool b_transposed) const {
    return name() + (a_transposed ? " a^T" : " a") + (b_transposed ? " b^T" : " b");
  }

 private:
  // What is overwritten must not matter, not even when it is NaN.
  std::vector<float> initial() const {
    return accumulate_ ? c_ : std::vector<float>(c_.size(), std::nanf(""));
  }

  Size size_;
  bool accumulate_;
  int64_t gap_, offset_;
  std::vector<float> a_, b_, c_;
  std::vector<SplitFloat> split_a_, split_b_;
};

}  // namespace lockstep::cpu
