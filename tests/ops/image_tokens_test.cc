// Catches: patches that are shifted by the class token, positions of another token, gradients that
// miss samples or add to what was there.
#include "runtime/graph/ops/image_tokens.h"

#include <gtest/gtest.h>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference_forward(const OpCall& call) {
  const auto op = ImageTokensForward<double>::of(call);
  for (int64_t b = 0; b < op.batch; ++b) {
    for (int64_t i = 0; i < op.tokens * op.width; ++i) {
      const double from =
          i < op.width ? op.class_token[i] : op.x[(b * (op.tokens - 1) - 1) * op.width + i];
      op.y[b * op.tokens * op.width + i] = from + op.position[i];
    }
  }
}

void reference_backward(const OpCall& call) {
  const auto op = ImageTokensBackward<double>::of(call);
  for (int64_t i = 0; i < op.tokens * op.width; ++i) {
    op.d_position[i] = 0;
    for (int64_t b = 0; b < op.batch; ++b) {
      const double d_y = op.d_y[b * op.tokens * op.width + i];
      op.d_position[i] += d_y;
      if (i >= op.width) op.d_x[(b * (op.tokens - 1) - 1) * op.width + i] = d_y;
    }
    if (i < op.width) op.d_class_token[i] = op.d_position[i];
  }
}

constexpr Implementation kReference[] = {
    {OpKind::kImageTokens, "double", reference_forward},
    {OpKind::kImageTokensBackward, "double", reference_backward},
};

// A sum is rounded once for each sample; what is copied is exact.
Tolerance tolerance(const OpCall& expected, size_t output, int64_t i) {
  if (expected.kind() == OpKind::kImageTokens) {
    const double y = std::abs(ImageTokensForward<double>::of(expected).y[i]);
    return {y, y};
  }
  const auto op = ImageTokensBackward<double>::of(expected);
  if (output == 0) return {0, std::abs(op.d_x[i])};
  const auto batch = static_cast<double>(op.batch);
  return {batch * batch, 0};
}

OpTest image_tokens(int64_t batch, int64_t height, int64_t columns, int64_t width) {
  return {.name = "image_tokens " + std::to_string(height) + " x " + std::to_string(columns) +
                  " C " + std::to_string(width),
          .build =
              [=](GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", {batch, height, columns, width});
                const TensorId class_token = builder.parameter("class", {width}, {}, false);
                const TensorId position =
                    builder.parameter("position", {height * columns + 1, width}, {}, false);
                ops::image_tokens(builder, "tokens", x, class_token, position);
              },
          .reference = kReference,
          .cpu = cpu::kCpuImageTokens,
          .cuda = cuda::kCudaImageTokens,
          .tolerance = tolerance};
}

TEST(ImageTokensTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(image_tokens(2, 2, 1, 3));
}

TEST(ImageTokensTest, MatchesTheReferenceOnAllDevices) {
  check_on_all_devices(image_tokens(1, 1, 1, 1));
  check_on_all_devices(image_tokens(3, 2, 3, 18));
  check_on_all_devices(image_tokens(2, 7, 7, 64));
  check_on_all_devices(image_tokens(1, 3, 5, 130));
}

}  // namespace
}  // namespace lockstep::test
