// Catches: a fragment whose registers are not those that mma.sync and ldmatrix define, a matrix
// that is loaded transposed or with a wrong distance of rows, sums that are handed to the next
// product in another order of columns than the right matrix follows, a product that reads a lane's
// registers after that lane has gone on.

#include "tests/fibers/cuda_on_host.h"
// What kernels need comes first.
#include <gtest/gtest.h>

#include <vector>

#include "runtime/cuda/fragments.h"
#include "tests/fibers/kernel_test.h"

namespace lockstep::cuda {
namespace {

using test::for_each_order;

constexpr int kRows = 16, kColumns = 8, kStride = 72;

// Element (i, j) of a matrix, such that no two rows or columns of it are alike.
float element(int i, int j) { return static_cast<float>((i * 5 + j * 3 + i * j) % 17 - 8); }

// What a lane gets when each word of shared memory is its own number.
__global__ void words_kernel(const uint32_t* from, bool columns, uint32_t* to) {
  alignas(16) __shared__ uint32_t words[kRows][8];
  for (int i = lane_of_warp(); i < kRows * 8; i += kWarp) words[i / 8][i % 8] = from[i];
  __syncwarp();
  const auto* const first = reinterpret_cast<const BFloat16*>(words);
  const LeftFragment left = load_left<BFloat16>(first, 16);
  RightFragment right[2];
  if (columns) {
    load_right<BFloat16>(first, 16, right);
  } else {
    load_rows_as_right<BFloat16>(first, 16, right);
  }
  for (int i = 0; i < 4; ++i) {
    to[lane_of_warp() * 8 + i] = left.words[i];
    to[lane_of_warp() * 8 + 4 + i] = right[i / 2].words[i % 2];
  }
}

// The tables of the PTX ISA, word by word: a0 and a1 are (row groupID, column threadID_in_group * 2
// + (i & 1)), a2 and a3 are of row groupID + 8, a4 to a7 the same 8 columns on; b0 and b1 are (row
// threadID_in_group * 2 + (i & 1), column groupID), b2 and b3 8 rows on.
TEST(Fragments, LanesHaveTheWordsThatTheInstructionDefines) {
  std::vector<uint32_t> words(kRows * 8), found(kWarp * 8);
  for (size_t i = 0; i < words.size(); ++i) {
    const auto number = static_cast<uint32_t>(2 * i);  // of the word's first element
    words[i] = number | (number + 1) << 16;
  }
  const auto number = [](int row, int column) { return static_cast<uint32_t>(row * 16 + column); };
  const auto pair = [](uint32_t first, uint32_t second) { return first | second << 16; };
  for_each_order([&](const char*) {
    for (const bool columns : {false, true}) {
      launch({{1}, {kWarp}, nullptr}, words_kernel, words.data(), columns, found.data());
      for (int lane = 0; lane < kWarp; ++lane) {
        const int group = lane / 4, place = lane % 4;
        const auto* const got = found.data() + lane * 8;
        for (int i = 0; i < 4; ++i) {
          const int row = group + i % 2 * 8, column = 2 * place + i / 2 * 8;
          EXPECT_EQ(got[i], pair(number(row, column), number(row, column + 1))) << lane;
        }
        for (int i = 0; i < 4; ++i) {
          const int k = 2 * place + i % 2 * 8, n = group + i / 2 * 8;
          EXPECT_EQ(
              got[4 + i],
              columns ? pair(number(k, n), number(k + 1, n)) : pair(number(n, k), number(n, k + 1)))
              << lane;
        }
      }
    }
    return test::bytes_of(found);
  });
}

template <typename T>
T stored(int i, int j) {
  return round_to<T>(element(i, j));
}

// The product of a (16, kDepth) with a matrix (kDepth, 16) that is stored by columns, and the
// product of its first kDepth columns with a matrix (kDepth, 16) that is stored by rows.
template <typename T>
__global__ void products_kernel(const T* a, const T* columns, const T* rows, float* out) {
  alignas(16) __shared__ T left[kRows][kStride], by_columns[16][kStride],
      by_rows[cuda::kDepth<T>][kStride];
  for (int i = lane_of_warp(); i < 16 * 16; i += kWarp) {
    left[i / 16][i % 16] = a[i];
    by_columns[i / 16][i % 16] = columns[i];
    if (i / 16 < kDepth<T>) by_rows[i / 16][i % 16] = rows[i];
  }
  __syncwarp();
  RightFragment right[2];
  SumFragment sums[2] = {}, weighted[2] = {};
  load_rows_as_right<T>(&by_columns[0][0], kStride, right);
  const LeftFragment first = load_left<T>(&left[0][0], kStride);
  multiply_add<T>(sums[0], first, right[0]);
  multiply_add<T>(sums[1], first, right[1]);
  load_right<T>(&by_rows[0][0], kStride, right);
  const LeftFragment next = left_of<T>(sums);
  multiply_add<T>(weighted[0], next, right[0]);
  multiply_add<T>(weighted[1], next, right[1]);
  for (int n = 0; n < 2; ++n) {
    for (int i = 0; i < 4; ++i) {
      const int place = sum_row(i) * 16 + n * kColumns + sum_column(i);
      out[place] = sums[n].at[i];
      out[256 + place] = weighted[n].at[i];
    }
  }
}

template <typename T>
void check_products() {
  std::vector<T> a, b, rows;
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      a.push_back(stored<T>(i, j));
      b.push_back(stored<T>(j + 3, i));
      rows.push_back(stored<T>(i + 1, j + 2));
    }
  }
  // Small integers: every sum is exact, and so is its rounding.
  std::vector<float> sums(256), weighted(256);
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      for (int k = 0; k < kDepth<T>; ++k) sums[i * 16 + j] += element(i, k) * element(k + 3, j);
    }
  }
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      for (int k = 0; k < kDepth<T>; ++k) {
        const float rounded = to_float(round_to<T>(sums[i * 16 + k]));
        weighted[i * 16 + j] += rounded * element(k + 1, j + 2);
      }
    }
  }
  for_each_order([&](const char*) {
    std::vector<float> out(512);
    launch(
        {{1}, {kWarp}, nullptr}, products_kernel<T>, a.data(), b.data(), rows.data(), out.data());
    EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + 256), sums);
    EXPECT_EQ(std::vector<float>(out.begin() + 256, out.end()), weighted);
    return test::bytes_of(out);
  });
}

TEST(Fragments, ProductsAreThoseOfTheMatrices) {
  check_products<BFloat16>();
  check_products<Float16>();
  check_products<float>();
}

// A word of TF32 has 10 bits of mantissa, ties away from 0.
TEST(Fragments, FloatsAreRoundedToTf32) {
  const auto rounded = [](float x) { return std::bit_cast<float>(tf32_word(x)); };
  EXPECT_EQ(rounded(1 + 0x1p-11f), 1 + 0x1p-10f);
  EXPECT_EQ(rounded(-1 - 0x1p-11f), -1 - 0x1p-10f);
  EXPECT_EQ(rounded(1 + 0x1p-11f - 0x1p-23f), 1.0f);
  EXPECT_EQ(rounded(1 + 0x3p-10f), 1 + 0x3p-10f);
  EXPECT_EQ(tf32_word(-std::numeric_limits<float>::infinity()), 0xff800000u);
  EXPECT_TRUE(std::isnan(rounded(std::nanf(""))));
}

}  // namespace
}  // namespace lockstep::cuda
