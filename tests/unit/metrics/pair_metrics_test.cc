// Catches: a partner that ties are counted for, a rank among the wrong texts, a batch whose
// candidates include another batch's, negatives that are left out, NaN that counts as near.
#include "runtime/metrics/pair_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::metrics {
namespace {

double product(const PairVectors& v, int64_t a, int64_t text_a, int64_t b, int64_t text_b) {
  double sum = 0;
  for (int64_t i = 0; i < v.width; ++i)
    sum += static_cast<double>(v.vector(a, text_a)[i]) * v.vector(b, text_b)[i];
  return sum;
}

std::vector<float> numbers(int64_t count) {
  std::vector<float> found;
  for (int64_t i = 0; i < count; ++i)
    found.push_back(static_cast<float>(std::sin(static_cast<double>(i * i + 3 * i))));
  return found;
}

TEST(PairMetrics, RecallCountsTiesAgainstThePartner) {
  // Anchors 1; the positives are 5, 3, 3, 1: ranks 0, 2, 2, 3.
  const std::vector<float> data = {1, 5, 1, 3, 1, 3, 1, 1};
  const Recalls found = recalls_of({data.data(), 4, 2, 1, 2});
  EXPECT_EQ(found.at_1, 0.25);
  EXPECT_EQ(found.at_5, 1);
  EXPECT_EQ(found.at_10, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> bad = {1, nan, 1, 3};
  EXPECT_EQ(recalls_of({bad.data(), 2, 2, 1, 2}).at_1, 0);
}

TEST(PairMetrics, RecallIsThatOfAllPairs) {
  constexpr int64_t kSamples = 150, kTexts = 3, kWidth = 21, kStride = 70;
  const std::vector<float> data = numbers(kSamples * kStride);
  const PairVectors vectors = {data.data(), kSamples, kTexts, kWidth, kStride};
  int64_t within[3] = {};
  for (int64_t i = 0; i < kSamples; ++i) {
    int64_t nearer = 0;
    for (int64_t j = 0; j < kSamples; ++j)
      nearer += j != i && product(vectors, i, 0, j, 1) >= product(vectors, i, 0, i, 1);
    within[0] += nearer < 1;
    within[1] += nearer < 5;
    within[2] += nearer < 10;
  }
  EXPECT_GT(within[2], within[0]);
  const Recalls found = recalls_of(vectors);
  EXPECT_EQ(found.at_1, static_cast<double>(within[0]) / kSamples);
  EXPECT_EQ(found.at_5, static_cast<double>(within[1]) / kSamples);
  EXPECT_EQ(found.at_10, static_cast<double>(within[2]) / kSamples);
}

TEST(PairMetrics, LossIsThatOfEachBatch) {
  constexpr int64_t kSamples = 11, kBatch = 4, kWidth = 5;
  const std::vector<float> data = numbers(kSamples * 3 * kWidth);
  const PairVectors vectors = {data.data(), kSamples, 3, kWidth, 3 * kWidth};
  for (const bool symmetric : {false, true}) {
    for (const bool negatives : {false, true}) {
      double expected = 0;
      for (int64_t i = 0; i < kSamples; ++i) {
        double forth = 0, back = 0;
        for (int64_t j = i / kBatch * kBatch; j < std::min(i / kBatch * kBatch + kBatch, kSamples);
             ++j) {
          forth += std::exp(product(vectors, i, 0, j, 1));
          if (negatives) forth += std::exp(product(vectors, i, 0, j, 2));
          back += std::exp(product(vectors, i, 1, j, 0));
        }
        const double own = product(vectors, i, 0, i, 1);
        expected +=
            symmetric ? (std::log(forth) + std::log(back)) / 2 - own : std::log(forth) - own;
      }
      EXPECT_NEAR(
          contrastive_loss_of(vectors, kBatch, symmetric, negatives), expected / kSamples, 1e-6);
    }
  }
}

TEST(PairMetrics, CosineDoesNotDependOnLengths) {
  const std::vector<float> data = {3, 4, 8, 6, 0, 0, 1, 1};
  const PairVectors vectors = {data.data(), 2, 2, 2, 4};
  EXPECT_FLOAT_EQ(cosine_of(vectors, 0), 0.96f);
  EXPECT_EQ(cosine_of(vectors, 1), 0);
}

}  // namespace
}  // namespace lockstep::metrics
