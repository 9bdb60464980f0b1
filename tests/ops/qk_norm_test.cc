// Catches: the gamma of queries taken for keys, heads or tokens mixed up, values that are changed
// or not copied, a wrong gradient term, parameter gradients that lose heads.
#include "runtime/graph/ops/qk_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void copy(const graph::QkNormRest<double>& rest) {
  for (int64_t token = 0; token < rest.tokens; ++token) {
    for (int64_t i = rest.first; i < rest.width; ++i)
      rest.to[token * rest.width + i] = rest.from[token * rest.width + i];
  }
}

// Calls f(number of the head, first element) for each head of each token.
template <typename Norm, typename F>
void each_head(const Norm& norm, F f) {
  const int64_t heads = norm.places.heads;
  for (int64_t token = 0; token < norm.rows / heads; ++token) {
    for (int64_t head = 0; head < heads; ++head)
      f(token * heads + head, token * norm.places.stride + head * norm.columns);
  }
}

void norm_heads(const graph::RowNormForward<double>& norm) {
  each_head(norm, [&](int64_t head, int64_t first) {
    double squares = 0;
    for (int64_t i = 0; i < norm.columns; ++i) squares += norm.x[first + i] * norm.x[first + i];
    norm.rstd[head] = 1 / std::sqrt(squares / static_cast<double>(norm.columns) + norm.epsilon);
    for (int64_t i = 0; i < norm.columns; ++i)
      norm.y[first + i] = norm.x[first + i] * norm.rstd[head] * norm.gamma[i];
  });
}

void norm_heads_backward(const graph::RowNormBackward<double>& norm) {
  for (int64_t i = 0; i < norm.columns; ++i) norm.d_gamma[i] = 0;
  each_head(norm, [&](int64_t head, int64_t first) {
    double mean = 0;
    const auto xhat = [&](int64_t i) { return norm.sum[first + i] * norm.rstd[head]; };
    for (int64_t i = 0; i < norm.columns; ++i)
      mean += norm.d_y[first + i] * norm.gamma[i] * xhat(i) / static_cast<double>(norm.columns);
    for (int64_t i = 0; i < norm.columns; ++i) {
      const double d_y = norm.d_y[first + i];
      norm.d_gamma[i] += d_y * xhat(i);
      norm.d_sum[first + i] = norm.rstd[head] * (d_y * norm.gamma[i] - xhat(i) * mean);
    }
  });
}

void reference_forward(const graph::OpCall& call) {
  const graph::QkNormForward<double> op{call};
  norm_heads(op.q);
  norm_heads(op.k);
  copy(op.rest);
}

void reference_backward(const graph::OpCall& call) {
  const graph::QkNormBackward<double> op{call};
  norm_heads_backward(op.q);
  norm_heads_backward(op.k);
  copy(op.rest);
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kQkNorm, "double", reference_forward},
    {graph::OpKind::kQkNormBackward, "double", reference_backward},
};

// As of rms_norm: elements are below 1 in size, and a head's rstd below 4 where it has some of them
// that are not near 0. Sums over D and over heads have errors that grow with them.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  constexpr double kRstd = 4;
  if (expected.kind() == graph::OpKind::kQkNorm) {
    const graph::QkNormForward<double> op{expected};
    const double sums = 4 + static_cast<double>(op.q.columns) / 64;
    if (output == graph::QkNormOut::kY)
      return {sums * std::abs(op.rest.to[i]), std::abs(op.rest.to[i])};
    return {sums * (output == graph::QkNormOut::kRstdQ ? op.q : op.k).rstd[i], 0};
  }
  const graph::QkNormBackward<double> op{expected};
  const double sums = 4 + static_cast<double>(op.q.columns) / 64;
  if (output == graph::QkNormBackwardOut::kDX)
    return {sums * (1 + kRstd * (1 + kRstd * kRstd)), std::abs(op.rest.to[i])};
  const graph::RowNormBackward<double>& norm =
      output == graph::QkNormBackwardOut::kDGammaQ ? op.q : op.k;
  return {(2 + static_cast<double>(norm.rows) / 8) * static_cast<double>(norm.rows) * kRstd, 0};
}

OpTest qk_norm(int64_t batch, int64_t time, int64_t heads, int64_t kv_heads, int64_t size) {
  return {.name = "qk_norm T " + std::to_string(time) + " H " + std::to_string(heads) + " K " +
                  std::to_string(kv_heads) + " D " + std::to_string(size),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x =
                    builder.activation_tensor("x", {batch, time, (heads + 2 * kv_heads) * size});
                const TensorId gamma_q = builder.parameter("gamma_q", {size}, {}, false);
                const TensorId gamma_k = builder.parameter("gamma_k", {size}, {}, false);
                ops::qk_norm(builder, "norm", x, gamma_q, gamma_k, {heads, kv_heads, 1e-5f});
              },
          .reference = kReference,
          .cpu = cpu::kCpuQkNorm,
          .cuda = cuda::kCudaQkNorm,
          .tolerance = tolerance};
}

TEST(QkNormTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(qk_norm(2, 2, 2, 1, 5));
}

TEST(QkNormTest, MatchesTheReferenceOnAllDevices) {
  check_on_all_devices(qk_norm(1, 1, 1, 1, 2));
  check_on_all_devices(qk_norm(2, 5, 4, 2, 18));
  check_on_all_devices(qk_norm(1, 9, 3, 1, 64));
  check_on_all_devices(qk_norm(1, 3, 6, 6, 130));
  check_on_all_devices(qk_norm(2, 190, 3, 1, 8));
  check_on_all_devices(qk_norm(1, 700, 7, 1, 4));  // more heads than warps
}

}  // namespace
}  // namespace lockstep::test
