// Catches: a row taken from the wrong token or position, lost gradients of repeated tokens, a run
// of equal tokens lost or counted twice where it crosses tiles, rows that no token names left
// unwritten, positions beyond T touched, an order of additions that depends on threads.
#include "runtime/graph/ops/embedding.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/rng.h"
#include "runtime/cpu/ops/implementations.h"
#include "runtime/cuda/ops/implementations.h"
#include "tests/ops/op_test.h"

namespace lockstep::test {
namespace {

void reference_forward(const graph::OpCall& call) {
  const graph::EmbeddingForward<double> op{call};
  const auto [batch, time, channels, vocabulary] = op.sizes;
  for (int64_t row = 0; row < batch * time; ++row) {
    for (int64_t c = 0; c < channels; ++c) {
      op.y[row * channels + c] = op.token[op.ids[row] * channels + c];
      if (op.position != nullptr)
        op.y[row * channels + c] += op.position[row % time * channels + c];
    }
  }
}

void reference_backward(const graph::OpCall& call) {
  const graph::EmbeddingBackward<double> op{call};
  const auto [batch, time, channels, vocabulary] = op.sizes;
  if (op.d_token != nullptr && !op.accumulate_token)
    std::fill_n(op.d_token, vocabulary * channels, 0.0);
  const bool position = op.d_position != nullptr;
  if (position && !op.accumulate_position) std::fill_n(op.d_position, time * channels, 0.0);
  for (int64_t row = 0; row < batch * time; ++row) {
    for (int64_t c = 0; c < channels; ++c) {
      if (op.d_token != nullptr)
        op.d_token[op.ids[row] * channels + c] += op.d_y[row * channels + c];
      if (position) op.d_position[row % time * channels + c] += op.d_y[row * channels + c];
    }
  }
}

constexpr exec::Implementation kReference[] = {
    {graph::OpKind::kEmbedding, "double", reference_forward},
    {graph::OpKind::kEmbeddingBackward, "double", reference_backward},
};

// Terms are below 1, so that a sum of n of them rounds by half an ulp of n at most, n times.
Tolerance tolerance(const graph::OpCall& expected, graph::OutputName output, int64_t i) {
  if (expected.kind() == graph::OpKind::kEmbedding)
    return {1, std::abs(graph::EmbeddingForward<double>{expected}.y[i])};
  const graph::EmbeddingSizes sizes = graph::EmbeddingBackward<double>{expected}.sizes;
  const auto terms =
      static_cast<double>(output == graph::EmbeddingBackwardOut::kDToken ? sizes.batch * sizes.time
                                                                         : sizes.batch) +
      1;
  return {terms * terms / 2, 0};
}

// Tokens are drawn from the first `used`. `twice`: the gradients are added to those of another use.
OpTest embedding(const graph::EmbeddingSizes& sizes,
                 int64_t used,
                 bool twice = false,
                 bool positions = true) {
  const auto [batch, time, channels, vocabulary] = sizes;
  return {.name = "embedding of " + std::to_string(batch) + " x " + std::to_string(time) +
                  " tokens of " + std::to_string(channels) + ", used " + std::to_string(used) +
                  (positions ? "" : ", without positions"),
          .build =
              [=](graph::GraphBuilder& builder) {
                const TensorId ids = builder.input("ids", {batch, time}, DType::kI32);
                const TensorId token = builder.parameter("token", {vocabulary, channels}, {}, true);
                TensorId position = kNoTensor;
                if (positions) position = builder.parameter("position", {time, channels}, {}, true);
                for (const TensorId parameter : {token, position}) {
                  if (twice && parameter != kNoTensor)
                    builder[parameter].gradient = builder.tensor("d_" + builder[parameter].name,
                                                                 builder.shape(parameter),
                                                                 DType::kF32,
                                                                 graph::Role::kParameterGradient);
                }
                ops::embedding(builder, "y", ids, token, position);
              },
          .reference = kReference,
          .cpu = cpu::kCpuEmbedding,
          .cuda = cuda::kCudaEmbedding,
          .tolerance = tolerance,
          .value = [=](const std::string& tensor, int64_t i) -> double {
            const auto at = static_cast<uint64_t>(i);
            if (tensor == "ids")
              return bounded_from_word(philox_word({.seed = 3}, at), static_cast<uint32_t>(used));
            return 2 * uniform_from_word(philox_word({.seed = tensor.size()}, at)) - 1;
          }};
}

TEST(EmbeddingTest, ReferenceMatchesFiniteDifferences) {
  check_gradient_of_reference(embedding({2, 3, 2, 4}, 4));
  check_gradient_of_reference(embedding({2, 3, 2, 4}, 4, false, false));
}

TEST(EmbeddingTest, MatchesTheReferenceOnAllDevices) {
  check_on_all_devices(embedding({1, 1, 1, 1}, 1));
  for (const int64_t channels : {1, 15, 17, 1003})
    check_on_all_devices(embedding({3, 7, channels, 11}, 11));
}

TEST(EmbeddingTest, PositionsMayBeMissing) {
  check_on_all_devices(embedding({3, 7, 17, 11}, 11, false, false));
  check_on_all_devices(embedding({2, 64, 8, 50}, 40, false, false));
  check_on_all_devices(embedding({2, 64, 8, 50}, 3, true, false));
}

TEST(EmbeddingTest, HasNoGradientOfWhatIsFrozen) {
  for (const size_t frozen : {0, 1}) {
    OpTest test = embedding({3, 7, 17, 11}, 11);
    test.name += frozen == 0 ? ", tokens frozen" : ", positions frozen";
    test.build = [=, build = test.build](graph::GraphBuilder& builder) {
      build(builder);
      builder[builder.graph().parameters[frozen]].frozen = true;
    };
    check_on_all_devices(test);
  }
}

TEST(EmbeddingTest, RunsOfEqualTokensCrossTiles) {
  check_on_all_devices(embedding({2, 64, 8, 50}, 40));
  check_on_all_devices(embedding({2, 64, 8, 50}, 1));    // one run over all tiles
  check_on_all_devices(embedding({3, 50, 24, 9}, 3));    // runs over several tiles
  check_on_all_devices(embedding({1, 32, 3, 2}, 2));     // exactly one tile
  check_on_all_devices(embedding({2, 40, 1040, 7}, 5));  // several blocks of columns
}

TEST(EmbeddingTest, GradientsAreAddedToThoseOfAnotherUse) {
  check_on_all_devices(embedding({2, 64, 8, 50}, 3, true));
  check_on_all_devices(embedding({3, 7, 17, 11}, 11, true));
}

}  // namespace
}  // namespace lockstep::test
