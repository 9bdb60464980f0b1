// Catches: rows taken for columns, strides, the bias or what is added to left out, and sums that
// depend on the order of the threads.
#include "runtime/cuda/matmul/plain_product.h"

#include <gtest/gtest.h>

#include "tests/fibers/kernel_test.h"

namespace lockstep::cuda {
namespace {

struct Case {
  int64_t m, n, k;
  bool transpose_a, transpose_b, bias, accumulate;
  int64_t stride_out = 0;
};

// Whole numbers, small enough for sums of them to be exact in each type.
float number(int64_t i) { return static_cast<float>(i * 7 % 5 - 2); }

template <typename In, typename Out>
void check(const Case& c, DType in, DType out_type) {
  const int64_t stride = c.stride_out > 0 ? c.stride_out : c.n;
  std::vector<In> a(static_cast<size_t>(c.m * c.k)), b(static_cast<size_t>(c.k * c.n)),
      bias(static_cast<size_t>(c.n));
  for (size_t i = 0; i < a.size(); ++i) a[i] = round_to<In>(number(static_cast<int64_t>(i)));
  for (size_t i = 0; i < b.size(); ++i) b[i] = round_to<In>(number(static_cast<int64_t>(i) + 3));
  for (size_t i = 0; i < bias.size(); ++i)
    bias[i] = round_to<In>(number(static_cast<int64_t>(i) + 1));
  test::for_each_order([&](const char*) {
    std::vector<Out> out(static_cast<size_t>(c.m * stride), round_to<Out>(5.0f));
    plain_product({.m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .stride_out = c.stride_out,
                   .transpose_a = c.transpose_a,
                   .transpose_b = c.transpose_b,
                   .in = in,
                   .out = out_type,
                   .accumulate = c.accumulate,
                   .epilogue = c.bias ? Epilogue::kBias : Epilogue::kNone},
                  {.a = a.data(), .b = b.data(), .out = out.data(), .bias = bias.data()},
                  nullptr);
    for (int64_t row = 0; row < c.m; ++row) {
      for (int64_t column = 0; column < stride; ++column) {
        float expected = column < c.n && !c.accumulate ? 0.0f : 5.0f;
        for (int64_t p = 0; column < c.n && p < c.k; ++p)
          expected += number(c.transpose_a ? p * c.m + row : row * c.k + p) *
                      number((c.transpose_b ? column * c.k + p : p * c.n + column) + 3);
        if (column < c.n && c.bias) expected += number(column + 1);
        EXPECT_EQ(to_float(out[static_cast<size_t>(row * stride + column)]), expected)
            << row << ", " << column;
      }
    }
    return test::bytes_of(out);
  });
}

TEST(CudaPlainProduct, EveryLayout) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const Case c = {13, 21, 9, transpose_a, transpose_b, true, false};
      check<float, float>(c, DType::kF32, DType::kF32);
      check<BFloat16, BFloat16>(c, DType::kBF16, DType::kBF16);
      check<Float16, Float16>(c, DType::kF16, DType::kF16);
    }
  }
}

TEST(CudaPlainProduct, AddsToFloats) {
  const Case c = {7, 33, 17, true, false, false, true};
  check<float, float>(c, DType::kF32, DType::kF32);
  check<BFloat16, float>(c, DType::kBF16, DType::kF32);
  check<Float16, float>(c, DType::kF16, DType::kF32);
}

TEST(CudaPlainProduct, LeavesThePaddingOfRows) {
  check<float, float>({5, 3, 4, false, true, true, false, 8}, DType::kF32, DType::kF32);
}

TEST(CudaPlainProduct, SingleRowsAndColumns) {
  check<float, float>({1, 1, 1, false, false, false, false}, DType::kF32, DType::kF32);
  check<BFloat16, BFloat16>({1, 300, 2, false, true, true, false}, DType::kBF16, DType::kBF16);
  check<Float16, float>({300, 1, 2, true, false, false, false}, DType::kF16, DType::kF32);
}

}  // namespace
}  // namespace lockstep::cuda
