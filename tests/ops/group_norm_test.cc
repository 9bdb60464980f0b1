// Catches: a wrong gradient term, variance by cancellation, channels counted into a neighbouring
// group, pixels or samples lost at the borders of parts, tiles and vectors, parameter gradients
// that lose a sample, parts brought together without the distance of their means.
#include "runtime/graph/ops/group_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

// Calls body(index of x, channel) for all elements of a group of a sample.
template <typename Body>
void for_each_element(const graph::GroupNormShape& s, int64_t sample, int64_t group, Body&& body) {
  for (int64_t p = 0; p < s.pixels; ++p) {
    for (int64_t c = group * s.group_channels(); c < (group + 1) * s.group_channels(); ++c)
      body((sample * s.pixels + p) * s.channels + c, c);
  }
}

void reference_forward(const graph::OpCall& call) {
  const graph::GroupNormForward<double> op{call};
  const graph::GroupNormShape& s = op.shape;
  const auto count = static_cast<double>(s.pixels * s.group_channels());
  for (int64_t i = 0; i < s.samples * s.groups; ++i) {
    double mean = 0, variance = 0;
    const auto each = [&](auto body) { for_each_element(s, i / s.groups, i % s.groups, body); };
    each([&](int64_t at, int64_t) { mean += op.x[at] / count; });
    each([&](int64_t at, int64_t) { variance += std::pow(op.x[at] - mean, 2) / count; });
    op.mean[i] = mean;
    op.rstd[i] = 1 / std::sqrt(variance + op.epsilon);
    each([&](int64_t at, int64_t c) {
      op.y[at] = (op.x[at] - mean) * op.rstd[i] * (op.gamma != nullptr ? op.gamma[c] : 1) +
                 (op.beta != nullptr ? op.beta[c] : 0);
    });
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::GroupNormBackward<double> op{call};
  const graph::GroupNormShape& s = op.shape;
  const auto count = static_cast<double>(s.pixels * s.group_channels());
  for (int64_t c = 0; c < s.channels; ++c) {
    if (op.d_gamma != nullptr) op.d_gamma[c] = 0;
    if (op.d_beta != nullptr) op.d_beta[c] = 0;
  }
  for (int64_t i = 0; i < s.samples * s.groups; ++i) {
    const auto each = [&](auto body) { for_each_element(s, i / s.groups, i % s.groups, body); };
    const auto g = [&](int64_t at, int64_t c) {
      return op.d_y[at] * (op.gamma != nullptr ? op.gamma[c] : 1);
    };
    const auto xhat = [&](int64_t at) { return (op.x[at] - op.mean[i]) * op.rstd[i]; };
    double mean_g = 0, mean_g_xhat = 0;
    each([&](int64_t at, int64_t c) {
      mean_g += g(at, c) / count;
      mean_g_xhat += g(at, c) * xhat(at) / count;
      if (op.d_gamma != nullptr) op.d_gamma[c] += op.d_y[at] * xhat(at);
      if (op.d_beta != nullptr) op.d_beta[c] += op.d_y[at];
    });
    each([&](int64_t at, int64_t c) {
      op.d_x[at] = op.rstd[i] * (g(at, c) - mean_g - xhat(at) * mean_g_xhat);
    });
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kGroupNorm, "double", reference_forward},
    {graph::OpKind::kGroupNormBackward, "double", reference_backward},
};

// Inputs lie in [1, 3), a mean of two standard deviations and more: cancellation would show. A
// channel's sum in a part is a chain over its pixels; what leaves it is brought together in
// doubles.
constexpr double kLow = 1, kHigh = 3;

Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  const auto group_of = [&](const graph::GroupNormShape& s) {
    return i / (s.pixels * s.channels) * s.groups + i % s.channels / s.group_channels();
  };
  if (expected.kind() == graph::OpKind::kGroupNorm) {
    const graph::GroupNormForward<double> op{expected};
    const double sums = 12 + static_cast<double>(std::min<int64_t>(op.shape.pixels, 1024)) / 16;
    if (output == graph::GroupNormOut::kY) {
      const double y = std::abs(op.y[i]), rstd = op.rstd[group_of(op.shape)];
      return {sums * (1 + y) * (1 + rstd), y};
    }
    return {output == graph::GroupNormOut::kMean ? sums : sums * op.rstd[i] * (1 + op.rstd[i]), 0};
  }
  const graph::GroupNormBackward<double> op{expected};
  const double chain = 12 + static_cast<double>(std::min<int64_t>(op.shape.pixels, 1024)) / 8;
  if (output == graph::GroupNormBackwardOut::kDX) {
    // g is below 9; xhat is wrong by its mean's error, and enters d_x twice, with rstd.
    const double rstd = op.rstd[group_of(op.shape)], slope = (1 + rstd) * (1 + rstd);
    return {10 * chain * slope, std::abs(op.d_x[i])};
  }
  const auto terms = static_cast<double>(op.shape.samples * op.shape.pixels);
  double rstd = 1;  // of any group
  for (int64_t k = 0; k < op.shape.samples * op.shape.groups; ++k)
    rstd = std::max(rstd, op.rstd[k]);
  return {chain * 3 * terms * (output == graph::GroupNormBackwardOut::kDGamma ? rstd : 1), 0};
}

OpTest group_norm(const Shape& shape, int64_t groups, bool with_gamma, bool with_beta) {
  return {.name = "group_norm of " + std::to_string(groups) + " groups in " + to_string(shape),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId x = builder.activation_tensor("x", shape);
                const auto row = [&](const char* name, bool there) {
                  return there ? builder.parameter(name, {shape.columns()}, {}, false) : kNoTensor;
                };
                const TensorId gamma = row("gamma", with_gamma), beta = row("beta", with_beta);
                ops::group_norm(builder, "norm", x, gamma, beta, {.groups = groups});
              },
          .reference = kReference,
          .cpu = cpu::kCpuGroupNorm,
          .cuda = cuda::kCudaGroupNorm,
          .tolerance = tolerance,
          .low = kLow,
          .high = kHigh};
}

TEST(GroupNormTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(group_norm({2, 2, 3, 6}, 3, true, true));
  check_gradient_of_reference(group_norm({2, 3, 4}, 4, false, true));
  check_gradient_of_reference(group_norm({3, 4}, 1, true, false));
}

TEST(GroupNormTest, MatchesTheReferenceOnAllDevices) {
  for (const int64_t channels : {1, 6, 16, 40, 96, 300}) {
    for (const int64_t groups : std::vector<int64_t>{1, 2, channels}) {
      if (channels % groups != 0) continue;
      check_on_all_devices(group_norm({3, 3, 5, channels}, groups, true, true));
    }
  }
}

TEST(GroupNormTest, ParametersMayBeMissing) {
  check_on_all_devices(group_norm({2, 4, 4, 24}, 3, false, false));
  check_on_all_devices(group_norm({2, 4, 4, 24}, 3, true, false));
  check_on_all_devices(group_norm({2, 4, 4, 24}, 24, false, true));
}

TEST(GroupNormTest, TakesSamplesOfOnePixelAndOfAnyRank) {
  check_on_all_devices(group_norm({5, 12}, 3, true, true));
  check_on_all_devices(group_norm({2, 3, 2, 2, 8}, 2, true, true));
}

TEST(GroupNormTest, LosesNoPixelAtTheBordersOfPartsAndTiles) {
  check_on_all_devices(group_norm({2, 67, 61, 8}, 2, true, true));
  check_on_all_devices(group_norm({1, 2051, 24}, 3, true, true));
}

// A part of a group lies near 1, the other near 1001: its distances are those between parts' means.
TEST(GroupNormTest, PartsFarApartAreBroughtTogether) {
  OpTest apart = group_norm({1, 4096, 8}, 2, false, false);
  apart.gradients = 0;
  apart.value = [](const std::string&, int64_t i) {
    return 1 + static_cast<double>(i % 13) / 13 + (i < 2048 * 8 ? 0 : 1000);
  };
  apart.tolerance = [](const graph::OpCall& expected, graph::OutputName output, int64_t i) {
    const double size = std::abs(expected.output<double>(output)[i]);
    const double rounded = output == graph::GroupNormOut::kY
                               ? 2 + 2 * size
                               : 8 + size;  // of inputs in the stored type
    return Tolerance{32 * (1 + size), rounded * (output == graph::GroupNormOut::kMean ? 600 : 1)};
  };
  check_on_all_devices(apart);
}

}  // namespace
}  // namespace lockstep::test
