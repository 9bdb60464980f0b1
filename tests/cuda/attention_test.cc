// Catches: a wrong gradient, keys of the future attended to, rows lost at the borders of blocks and
// tiles, elements behind the head's size that count, a missing barrier around the shared tiles.

#include "runtime/cuda/ops/attention.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/attention_reference.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

template <typename T>
std::vector<std::byte> check(const cuda::AttentionShape& shape, const std::string& order) {
  const auto [batch, time, heads, head_size, causal] = shape;
  const int64_t width = heads * head_size, n = batch * time * width;
  const std::string where = " T = " + std::to_string(time) + ", D = " + std::to_string(head_size) +
                            (causal ? ", causal, " : ", ") + order;
  Guarded<T> qkv(3 * n), out(n), d_out(n), d_qkv(3 * n);
  Guarded<float> log_sum_exp(batch * heads * time);
  test::fill_stored(qkv, -1, 1, 1);
  test::fill_stored(d_out, -1, 1, 2);
  test::AttentionReference expected{.batch = batch,
                                    .time = time,
                                    .heads = heads,
                                    .head_size = head_size,
                                    .causal = causal,
                                    .qkv = test::as_doubles(qkv)};
  expected.forward();
  cuda::attention_forward(shape, qkv.data(), out.data(), log_sum_exp.data(), nullptr);
  // Scores are below sqrt(D); their rounding enters each weight, and a sum of T of them.
  const double score_eps = kEps * (8 + 2 * std::sqrt(static_cast<double>(head_size)));
  const double eps = score_eps + kEps * static_cast<double>(time) / 8;
  test::expect_close(
      test::as_doubles(out),
      expected.out,
      [&](int64_t i) {
        return eps + test::kSpacing<T> / 2 * std::abs(expected.out[static_cast<size_t>(i)]) +
               0x1p-25;
      },
      "out" + where);
  test::expect_close(log_sum_exp, expected.log_sum_exp, 2 * eps, "log_sum_exp" + where);

  // Backward reads the rounded output: its error times d_out, over D elements, shifts every score's
  // gradient.
  const std::vector<double> d_out64 = test::as_doubles(d_out);
  expected.backward(d_out64);
  Guarded<float> workspace(
      static_cast<int64_t>(cuda::attention_workspace_bytes(shape) / sizeof(float)));
  cuda::attention_backward(shape,
                           d_out.data(),
                           qkv.data(),
                           out.data(),
                           log_sum_exp.data(),
                           d_qkv.data(),
                           workspace.data(),
                           nullptr);
  const double shift =
      std::is_same_v<T, float> ? 0 : test::kSpacing<T> * std::sqrt(static_cast<double>(head_size));
  test::expect_close(
      test::as_doubles(d_qkv),
      expected.d_qkv,
      [&](int64_t i) {
        const double value = std::abs(expected.d_qkv[static_cast<size_t>(i)]);
        return 8 * eps * (1 + value) + shift * (0.5 + value) + test::kSpacing<T> / 2 * value;
      },
      "d_qkv" + where);
  return test::bytes_of(out, log_sum_exp, d_qkv);
}

template <typename T>
class CudaAttentionTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaAttentionTest, test::StoredTypes);

TYPED_TEST(CudaAttentionTest, MatchesDoublePrecisionInAnyOrder) {
  for (bool causal : {false, true}) {
    for (const cuda::AttentionShape& shape : {cuda::AttentionShape{1, 1, 1, 1, causal},
                                              cuda::AttentionShape{2, 33, 2, 8, causal},
                                              cuda::AttentionShape{1, 70, 1, 20, causal},
                                              cuda::AttentionShape{1, 40, 2, 64, causal},
                                              cuda::AttentionShape{1, 35, 1, 128, causal},
                                              cuda::AttentionShape{1, 18, 1, 160, causal}}) {
      test::for_each_order(
          [&](const std::string& order) { return check<TypeParam>(shape, order); });
    }
  }
}

}  // namespace
}  // namespace lockstep
