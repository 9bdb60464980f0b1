// Catches: padding rows that count or have a gradient, numbers lost beyond a vector or a warp, a
// wrong scale of the gradient, NaN swallowed.
#include "runtime/graph/ops/given_loss.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference(const graph::OpCall& call) {
  const graph::GivenLoss<double> op{call};
  std::fill_n(op.statistics, 4, 0.0);
  const auto outputs = static_cast<double>(op.outputs);
  for (int64_t i = 0; i < op.rows * op.outputs; ++i) {
    const bool counts = i / op.outputs < call.lane().valid_rows;
    const double loss = op.losses[i];
    if (op.gradient != nullptr) op.gradient[i] = counts ? call.lane().gradient_scale / outputs : 0;
    if (!counts) continue;
    op.statistics[0] += loss / outputs;
    op.statistics[1] += 1 / outputs;
  }
}

constexpr exec::Implementation kReference[] = {{graph::OpKind::kGivenLoss, "double", reference}};

OpTest loss(int64_t rows, int64_t outputs) {
  return {.name = "given_loss of (" + std::to_string(rows) + ", " + std::to_string(outputs) + ")",
          .build =
              [=](graph::GraphBuilder& builder) {
                ops::given_loss(builder, builder.activation_tensor("losses", {rows, outputs}));
              },
          .reference = kReference,
          .cpu = cpu::kCpuGivenLoss,
          .cuda = cuda::kCudaGivenLoss,
          .tolerance =
              [=](const graph::OpCall& expected, graph::OutputName output, int64_t i) -> Tolerance {
            const double scale = expected.lane().gradient_scale / static_cast<double>(outputs);
            if (output == graph::LossOut::kGradient) return {4 * scale, scale};
            // A row's sum in 16 lanes or more, of numbers below 3.
            const double sums = 8 + static_cast<double>(outputs) / 16;
            return {i == 0 ? 3 * sums * static_cast<double>(rows) : 1, 0};
          },
          .low = -1,
          .high = 3,
          .lane = {.valid_rows = rows, .gradient_scale = 0.25f}};
}

TEST(GivenLossTest, ReferenceMatchesFiniteDifferences) { check_gradient_of_reference(loss(3, 7)); }

TEST(GivenLossTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t outputs : {1, 3, 15, 17, 71, 1003}) {
    for (const int64_t valid_rows : {0, 3, 5, 9}) {
      OpTest test = loss(5, outputs);
      test.lane.valid_rows = valid_rows;
      check_on_all_devices(test);
      test.gradients = 0;  // of an evaluation
      check_on_all_devices(test);
    }
  }
  check_on_all_devices(loss(3000, 2));
}

TEST(GivenLossTest, NanReachesTheLoss) {
  OpTest test = loss(1, 20);
  test.value = [](const std::string&, int64_t i) { return i == 17 ? std::nan("") : 0.25; };
  check_on_all_devices(test);
}

}  // namespace
}  // namespace lockstep::test
