// Catches: padding that is counted, a mean over the wrong number, samples that are mixed up,
// gradients that are left as they were where no token counts.
#include "runtime/graph/ops/token_pooling.h"

#include <gtest/gtest.h>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

double share_of(const graph::CountedTokens& counted, int64_t sample) {
  int64_t count = 0;
  for (int64_t t = 0; t < counted.tokens; ++t) count += counted.is_counted(sample, t);
  return count == 0 ? 0 : 1 / static_cast<double>(count);
}

void reference_forward(const graph::OpCall& call) {
  const graph::TokenPoolingForward<double> op{call};
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t i = 0; i < op.width; ++i) {
      double sum = 0;
      for (int64_t t = 0; t < op.counted.tokens; ++t) {
        if (op.counted.is_counted(b, t)) sum += op.x[(b * op.counted.tokens + t) * op.width + i];
      }
      op.y[b * op.width + i] = sum * share_of(op.counted, b);
    }
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::TokenPoolingBackward<double> op{call};
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t t = 0; t < op.counted.tokens; ++t) {
      const double factor = op.counted.is_counted(b, t) ? share_of(op.counted, b) : 0;
      for (int64_t i = 0; i < op.width; ++i)
        op.d_x[(b * op.counted.tokens + t) * op.width + i] = factor * op.d_y[b * op.width + i];
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kTokenPooling, "double", reference_forward},
    {graph::OpKind::kTokenPoolingBackward, "double", reference_backward},
};

// Elements are below 1 in size: so are their means.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName, int64_t i) {
  if (expected.kind() == graph::OpKind::kTokenPooling) {
    const graph::TokenPoolingForward<double> op{expected};
    return {static_cast<double>(op.counted.tokens) + 2, std::abs(op.y[i])};
  }
  return {2, std::abs(graph::TokenPoolingBackward<double>{expected}.d_x[i])};
}

OpTest token_pooling(int64_t batch, int64_t tokens, int64_t width) {
  return {.name = "token_pooling T " + std::to_string(tokens) + " C " + std::to_string(width),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {batch, tokens, width});
                ops::token_pooling(
                    builder, "pooled", x, builder.input("documents", {batch, tokens}, DType::kI32));
              },
          .reference = kReference,
          .cpu = cpu::kCpuTokenPooling,
          .cuda = cuda::kCudaTokenPooling,
          .tolerance = tolerance,
          .value =
              [=](const std::string& name, int64_t i) {
                if (name != "documents") return std::sin(static_cast<double>(3 * i + 1));
                if (i / tokens == 0) return 3.0;                        // no padding
                if (batch > 1 && i / tokens == batch - 1) return -1.0;  // nothing else
                return static_cast<double>(i * 7 % 5) - 2;
              }};
}

TEST(TokenPoolingTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(token_pooling(3, 3, 2));
}

TEST(TokenPoolingTest, MatchesTheReferenceOnAllDevices) {
  check_on_all_devices(token_pooling(1, 1, 1));
  check_on_all_devices(token_pooling(3, 5, 18));
  check_on_all_devices(token_pooling(4, 50, 64));
  check_on_all_devices(token_pooling(1, 7, 130));
}

}  // namespace
}  // namespace lockstep::test
