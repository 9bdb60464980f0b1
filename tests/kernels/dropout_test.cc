// Catches: a vectorised Philox that differs from the scalar one in any word (also for large seeds,
// lanes and purposes), a mask that differs between forward and backward, threads or instruction
// sets, a wrong keep rate or scale.

#include "runtime/cpu/ops/dropout.h"

#include "tests/reference/kernel_test.h"

namespace lockstep {
namespace {

using test::Guarded;

const RngStream kStreams[] = {
    {.seed = 1, .step = 0, .lane = 0, .purpose = kRngDropout},
    {.seed = 0xFEDCBA9876543210u, .step = 4000000000u, .lane = 4095, .purpose = kRngDropout | 77},
};

TEST(DropoutTest, EqualsTheScalarGenerator) {
  test::for_each_target([&](const std::string& target) {
    for (const RngStream& stream : kStreams) {
      for (int64_t n : {1, 3, 15, 17, 33, 1003, 2048, 5001}) {
        for (float p : {0.0f, 0.1f, 0.5f, 0.999f}) {
          Guarded<float> x(n, 1), y(n, 3);
          test::fill_uniform(x, -3, 3, n);
          cpu::dropout_forward(x.data(), y.data(), n, p, stream);
          std::vector<float> expected(n);
          for (int64_t i = 0; i < n; ++i) {
            const bool kept = philox_word(stream, i) >= static_cast<double>(p) * 4294967296.0;
            expected[i] = kept ? x[i] * (1 / (1 - p)) : 0.0f;
          }
          test::expect_same_bits(expected, y, "dropout, " + target);
          cpu::dropout_backward(x.data(), x.data(), n, p, stream);  // the same map, in place
          test::expect_same_bits(expected, x, "dropout backward, " + target);
        }
      }
    }
  });
}

TEST(DropoutTest, KeepsTheStatedFractionAndTheMean) {
  const int64_t n = 1 << 20;
  const float p = 0.3f;
  std::vector<float> ones(n, 1.0f), y(n);
  cpu::dropout_forward(ones.data(), y.data(), n, p, kStreams[0]);
  double kept = 0, sum = 0;
  for (float value : y) {
    kept += value != 0;
    sum += value;
  }
  // Five standard deviations of a binomial count.
  const double deviation = 5 * std::sqrt(p * (1 - p) / n);
  EXPECT_TRUE(std::abs(kept / n - (1 - p)) <= deviation) << kept / n;
  EXPECT_TRUE(std::abs(sum / n - 1) <= deviation / (1 - p)) << sum / n;
}

TEST(DropoutTest, DifferentStreamsGiveDifferentMasks) {
  const int64_t n = 4096;
  std::vector<float> ones(n, 1.0f), base(n), other(n);
  const RngStream stream = kStreams[0];
  cpu::dropout_forward(ones.data(), base.data(), n, 0.5f, stream);
  RngStream variants[] = {stream, stream, stream, stream, stream};
  variants[0].seed ^= 1;
  variants[1].seed ^= uint64_t{1} << 32;
  variants[2].step += 1;
  variants[3].lane += 1;
  variants[4].purpose += 1;
  for (const RngStream& variant : variants) {
    cpu::dropout_forward(ones.data(), other.data(), n, 0.5f, variant);
    int64_t equal = 0;
    for (int64_t i = 0; i < n; ++i) equal += base[i] == other[i];
    // Independent masks agree in half the places; six standard deviations are 192.
    EXPECT_TRUE(std::abs(static_cast<double>(equal - n / 2)) <= 192) << equal;
  }
}

TEST(DropoutTest, Reproducible) {
  const int64_t n = 70001;
  std::vector<float> x(n);
  test::fill_uniform(x, -3, 3, 5);
  test::expect_reproducible<float>(
      [&] {
        std::vector<float> y(n);
        cpu::dropout_forward(x.data(), y.data(), n, 0.2f, kStreams[1]);
        return y;
      },
      "dropout");
}

}  // namespace
}  // namespace lockstep
