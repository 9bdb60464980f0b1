// Catches: a matrix taken from another batch or transposed where it is not, a broadcast dimension
// that moves, gradients that miss a batch that shares a matrix, scale left out or applied twice,
// sums rounded to 16 bits on the way, an order of sums that depends on threads or on how many
// products there are.
#include "runtime/graph/ops/batched_matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// The matrices' dimensions are the last two.
int64_t extent(const Shape& shape, int from_last) {
  return from_last < shape.rank() ? shape[shape.rank() - 1 - from_last] : 1;
}

// Where the matrix for the indices of all dimensions before the last two begins; `index` is counted
// from the last of these.
int64_t matrix_at(const Shape& shape, const std::vector<int64_t>& index) {
  int64_t at = 0, stride = extent(shape, 0) * extent(shape, 1);
  for (size_t d = 0; d < index.size(); ++d) {
    const int64_t count = extent(shape, static_cast<int>(d) + 2);
    if (count > 1) at += index[d] * stride;
    stride *= count;
  }
  return at;
}

void reference(const graph::OpCall& call) {
  const auto [transpose_a, transpose_b, scale] = call.attributes<graph::BatchedMatmulAttributes>();
  const Shape a = call.input_shape(graph::BatchedMatmulIn::kA),
              b = call.input_shape(graph::BatchedMatmulIn::kB),
              y = call.output_shape(graph::BatchedMatmulOut::kY);
  const auto *const from_a = call.input<double>(graph::BatchedMatmulIn::kA),
                    *const from_b = call.input<double>(graph::BatchedMatmulIn::kB);
  double* const to = call.output<double>(graph::BatchedMatmulOut::kY);
  std::fill_n(to, y.elements(), 0.0);
  const int64_t m = extent(y, 1), n = extent(y, 0), k = extent(a, transpose_a ? 1 : 0);
  const int outer = std::max({a.rank(), b.rank(), y.rank()}) - 2;
  std::vector<int64_t> index(static_cast<size_t>(outer), 0);
  int64_t rounds = 1;
  for (int d = 2; d < outer + 2; ++d) rounds *= extent(a, d) == 1 ? extent(b, d) : extent(a, d);
  for (int64_t round = 0; round < rounds; ++round) {
    int64_t rest = round;
    for (size_t d = 0; d < index.size(); ++d) {
      const int place = static_cast<int>(d) + 2;
      const int64_t count = extent(a, place) == 1 ? extent(b, place) : extent(a, place);
      index[d] = rest % count;
      rest /= count;
    }
    const double* const left = from_a + matrix_at(a, index);
    const double* const right = from_b + matrix_at(b, index);
    double* const result = to + matrix_at(y, index);
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t p = 0; p < k; ++p)
          result[i * n + j] += static_cast<double>(scale) *
                               left[transpose_a ? p * m + i : i * k + p] *
                               right[transpose_b ? j * k + p : p * n + j];
      }
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kBatchedMatmul, "double", reference}};

// Terms are below 1 times the scale: a sum of k of them rounds by half an ulp of k at most, k
// times; then it is scaled and rounded to what is stored.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  const auto& attributes = expected.attributes<graph::BatchedMatmulAttributes>();
  const auto sizes = graph::BatchedProducts::of(expected.input_shape(graph::BatchedMatmulIn::kA),
                                                expected.input_shape(graph::BatchedMatmulIn::kB),
                                                expected.output_shape(graph::BatchedMatmulOut::kY),
                                                attributes);
  const auto terms = static_cast<double>(sizes.k * sizes.sums.count());
  const double floats = (terms * terms / 2 + terms) * std::abs(attributes.scale);
  return {floats,
          std::abs(expected.output<double>(graph::BatchedMatmulOut::kY)[i]) + floats * 0x1p-23};
}

OpTest matmul(const Shape& a,
              const Shape& b,
              bool transpose_a = false,
              bool transpose_b = false,
              float scale = 1) {
  return {.name = "product of " + to_string(a) + (transpose_a ? "^T" : "") + " and " +
                  to_string(b) + (transpose_b ? "^T" : ""),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId left = builder.activation_tensor("a", a);
                ops::batched_matmul(builder,
                                    "y",
                                    left,
                                    builder.activation_tensor("b", b),
                                    transpose_a,
                                    transpose_b,
                                    scale);
              },
          .reference = kReference,
          .cpu = cpu::kCpuBatchedMatmul,
          .cuda = cuda::kCudaBatchedMatmul,
          .tolerance = tolerance};
}

TEST(BatchedMatmulTest, MultipliesAsNumPyDoes) {
  OpTest test = matmul({2, 1, 2}, {2, 2}, false, false, 2);
  test.value = [](const std::string&, int64_t i) { return static_cast<double>(i + 1); };
  EXPECT_EQ(first_output_of_reference(test), (std::vector<double>{14, 20, 30, 44}));
}

TEST(BatchedMatmulTest, ReferenceMatchesFiniteDifferences) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const Shape a = transpose_a ? Shape{2, 1, 2, 3} : Shape{2, 1, 3, 2};
      const Shape b = transpose_b ? Shape{4, 4, 2} : Shape{4, 2, 4};
      check_gradient_of_reference(matmul(a, b, transpose_a, transpose_b, 0.5f));
    }
  }
  check_gradient_of_reference(matmul({3, 2}, {2, 2, 5}));
}

TEST(BatchedMatmulTest, EveryLayout) {
  for (const bool transpose_a : {false, true}) {
    for (const bool transpose_b : {false, true}) {
      const Shape a = transpose_a ? Shape{3, 9, 13} : Shape{3, 13, 9};
      const Shape b = transpose_b ? Shape{3, 21, 9} : Shape{3, 9, 21};
      check_on_all_devices(matmul(a, b, transpose_a, transpose_b, 0.25f));
    }
  }
}

TEST(BatchedMatmulTest, HeadsOfAttention) {
  check_on_all_devices(matmul({2, 3, 40, 16}, {2, 3, 40, 16}, false, true, 0.25f));
  check_on_all_devices(matmul({2, 3, 40, 40}, {2, 3, 40, 16}));
  check_on_all_devices(matmul({1, 2, 77, 33}, {1, 2, 77, 33}, false, true, 0.1f));
}

TEST(BatchedMatmulTest, OneAndFewRows) {
  check_on_all_devices(matmul({1, 1}, {1, 1}));
  check_on_all_devices(matmul({5, 1, 7}, {5, 7, 1}));
  check_on_all_devices(matmul({5, 1, 30}, {5, 30, 50}));
  check_on_all_devices(matmul({2, 50, 1}, {2, 1, 40}));
}

TEST(BatchedMatmulTest, SharedMatrices) {
  check_on_all_devices(matmul({4, 5, 6}, {6, 8}));  // one b: more rows of a
  check_on_all_devices(matmul({2, 3, 5, 6}, {8, 6}, false, true));
  check_on_all_devices(matmul({5, 6}, {4, 6, 8}));  // one a
  check_on_all_devices(matmul({6, 8}, {3, 6, 16}, true));
  check_on_all_devices(matmul({2, 4, 3, 8}, {2, 1, 8, 16}));  // heads share keys
  check_on_all_devices(matmul({2, 1, 3, 8}, {3, 8, 7}));
  check_on_all_devices(matmul({2, 1, 3, 1, 5, 8}, {4, 1, 2, 8, 4}, false, false, 2));
  check_on_all_devices(matmul({2, 1, 2, 1, 2, 1, 3, 2}, {1, 2, 1, 2, 1, 2, 2, 3}));
}

TEST(BatchedMatmulTest, BlocksAndDepths) {
  check_on_all_devices(matmul({2, 130, 70}, {2, 70, 90}));
  check_on_all_devices(matmul({2, 15, 1700}, {2, 1700, 35}));
  check_on_all_devices(matmul({17, 3, 20}, {17, 20, 33}));  // more products than threads
}

TEST(BatchedMatmulTest, NoTermsGiveZeros) { check_on_all_devices(matmul({2, 3, 0}, {2, 0, 4})); }

}  // namespace
}  // namespace lockstep::test
