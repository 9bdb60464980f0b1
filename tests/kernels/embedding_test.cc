// Catches: a row taken from the wrong token or position, lost gradients of repeated tokens, rows
// not zeroed (or zeroed although accumulating), positions beyond T touched, an order of additions
// that depends on threads.

#include "runtime/cpu/ops/embedding.h"

#include "tests/reference/embedding.h"
#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

std::vector<int32_t> random_ids(int64_t n, int64_t vocabulary, uint64_t seed) {
  std::vector<int32_t> ids(n);
  const RngStream stream{.seed = seed};
  for (int64_t i = 0; i < n; ++i) ids[i] = bounded_from_word(philox_word(stream, i), vocabulary);
  return ids;
}

TEST(EmbeddingTest, DoublePrecisionGradientMatchesFiniteDifferences) {
  const int64_t batch = 2, time = 3, channels = 2, vocabulary = 4;
  const std::vector<int32_t> ids = random_ids(batch * time, vocabulary, 3);
  std::vector<double> token(vocabulary * channels), position(time * channels),
      weights(batch * time * channels);
  test::fill_uniform(token, -1, 1, 1);
  test::fill_uniform(position, -1, 1, 2);
  test::fill_uniform(weights, -1, 1, 3);
  const auto f = [&] {
    const std::vector<double> y =
        test::embedding_forward(ids, token, position, batch, time, channels);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += weights[i] * y[i];
    return sum;
  };
  std::vector<double> d_token(token.size()), d_position(position.size());
  test::embedding_backward(ids, weights, batch, time, channels, d_token, d_position);
  test::expect_gradient(f, token, d_token, "d_token");
  test::expect_gradient(f, position, d_position, "d_position");
}

TEST(EmbeddingTest, MatchesDoublePrecision) {
  test::for_each_target([&](const std::string& target) {
    for (int64_t channels : {1, 15, 17, 1003}) {
      const int64_t batch = 3, time = 7, vocabulary = 11, positions = 9;
      const std::vector<int32_t> ids = random_ids(batch * time, vocabulary, channels);
      Guarded<float> token(vocabulary * channels, 1), position(positions * channels, 2),
          y(batch * time * channels, 3);
      Guarded<float> d_y(batch * time * channels, 1), d_token(vocabulary * channels, 3),
          d_position(positions * channels, 1);
      test::fill_uniform(token, -1, 1, 1);
      test::fill_uniform(position, -1, 1, 2);
      test::fill_uniform(d_y, -1, 1, 3);
      const cpu::EmbeddingSizes sizes{batch, time, channels, vocabulary};

      cpu::embedding_forward(sizes, ids.data(), token.data(), position.data(), y.data());
      const std::vector<double> expected_y = test::embedding_forward(
          ids, test::to_double(token), test::to_double(position), batch, time, channels);
      test::expect_close(
          y, expected_y, 2 * kEps, "y, " + target);  // one addition of magnitude up to 2

      for (bool accumulate : {false, true}) {
        std::vector<double> before_token(d_token.size()), before_position(d_position.size());
        test::fill_uniform(d_token, 1, 2, 4);
        test::fill_uniform(d_position, 1, 2, 5);
        before_position = test::to_double(d_position);
        if (accumulate) before_token = test::to_double(d_token);
        std::vector<double> expected_position = before_position;
        if (!accumulate)
          std::fill(expected_position.begin(), expected_position.begin() + time * channels, 0.0);
        test::embedding_backward(
            ids, test::to_double(d_y), batch, time, channels, before_token, expected_position);
        cpu::embedding_backward(sizes,
                                ids.data(),
                                d_y.data(),
                                d_token.data(),
                                accumulate,
                                d_position.data(),
                                accumulate);
        // At most 21 additions of values up to 1 on top of 2, each rounding by half an ulp of the
        // partial sum.
        test::expect_close(d_token, before_token, 21 * 23 * kEps / 2, "d_token, " + target);
        test::expect_close(
            d_position, expected_position, 3 * 5 * kEps / 2, "d_position, " + target);
      }
    }
  });
}

TEST(EmbeddingTest, Reproducible) {
  const cpu::EmbeddingSizes sizes{2, 50, 771, 40};
  const std::vector<int32_t> ids = random_ids(sizes.batch * sizes.time, sizes.vocabulary, 9);
  std::vector<float> d_y(sizes.batch * sizes.time * sizes.channels),
      token(sizes.vocabulary * sizes.channels);
  test::fill_uniform(d_y, -1, 1, 1);
  test::fill_uniform(token, -1, 1, 2);
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> d_token(token.size()), d_position(sizes.time * sizes.channels),
            y(d_y.size());
        cpu::embedding_forward(sizes, ids.data(), token.data(), d_y.data(), y.data());
        cpu::embedding_backward(
            sizes, ids.data(), y.data(), d_token.data(), false, d_position.data(), false);
        d_token.insert(d_token.end(), d_position.begin(), d_position.end());
        return d_token;
      },
      "embedding");
}

}  // namespace
}  // namespace lockstep
