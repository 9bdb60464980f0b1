// Catches: overflow of large logits, a wrong factor or sign, accuracy counted wrongly, padding rows
// that count or have a gradient, NaN swallowed, statistics that depend on threads or vector width.

#include "runtime/cpu/ops/binary_cross_entropy.h"

#include "tests/reference/kernel_test.h"
#include "tests/reference/losses.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

TEST(BinaryCrossEntropyTest, DoublePrecisionGradientMatchesFiniteDifferences) {
  std::vector<double> x(7), target(7);
  test::fill_uniform(x, -2, 2, 1);
  test::fill_uniform(target, 0, 1, 2);
  test::expect_gradient([&] { return test::binary_cross_entropy_row(x, target).loss; },
                        x,
                        test::binary_cross_entropy_row(x, target).gradient,
                        "gradient");
}

TEST(BinaryCrossEntropyTest, MatchesDoublePrecision) {
  test::for_each_target([](const std::string& target_name) {
    for (int64_t outputs : {1, 15, 17, 1003}) {
      for (int64_t valid_rows : {0, 3, 5, 9}) {
        for (float range : {3.0f, 300.0f}) {
          const int64_t rows = 5;
          const float scale = 0.25f;
          const std::string where = " (" + std::to_string(outputs) + " outputs), " + target_name;
          Guarded<float> x(rows * outputs, 1), targets(rows * outputs, 3);
          test::fill_uniform(x, -range, range, 1);
          test::fill_uniform(targets, 0, 1, 2);
          for (int64_t i = 0; i < targets.size(); i += 2) targets[i] = i % 4 == 0;  // hard labels
          double loss = 0, correct = 0;
          std::vector<double> gradient(rows * outputs);
          for (int64_t r = 0; r < std::min(rows, valid_rows); ++r) {
            const test::RowLoss row = test::binary_cross_entropy_row(
                {x.data() + r * outputs, x.data() + (r + 1) * outputs},
                {targets.data() + r * outputs, targets.data() + (r + 1) * outputs});
            loss += row.loss;
            correct += row.correct;
            for (int64_t i = 0; i < outputs; ++i)
              gradient[r * outputs + i] = row.gradient[i] * scale;
          }
          Guarded<cpu::LossRow> workspace(rows);
          const cpu::BinaryCrossEntropy op{
              rows, outputs, valid_rows, targets.data(), workspace.data()};
          const std::vector<float> before = x.copy();
          Guarded<double> eval(4), train(4);
          cpu::binary_cross_entropy_forward(op, x.data(), eval.data());
          test::expect_same_bits(before, x, "logits after the forward pass" + where);
          cpu::binary_cross_entropy_forward_backward(op, x.data(), scale, train.data());
          test::expect_same_bits(eval, train, "statistics of both passes" + where);
          // max(x, 0) - x t rounds relative to |x|; up to 67 additions of the row's sum follow.
          EXPECT_TRUE(std::abs(train[0] - loss) <= kEps * (4 * rows * range + 34 * loss))
              << where << train[0] << " expected " << loss;
          EXPECT_EQ(train[1], std::min(rows, valid_rows)) << where;
          EXPECT_NEAR(train[2], correct, 1e-12) << where;
          EXPECT_EQ(train[3], 0) << where;
          // sigmoid and target are at most 1.
          test::expect_close(
              x, gradient, 4 * kEps * scale / static_cast<double>(outputs), "gradient" + where);
        }
      }
    }
  });
}

TEST(BinaryCrossEntropyTest, ConfidentRightAnswersKeepTheirTinyLoss) {
  test::for_each_target([](const std::string& target) {
    for (float x : {10.0f, 20.0f, 40.0f}) {
      const float logits[] = {x, -x}, targets[] = {1, 0};
      cpu::LossRow workspace[2];
      double statistics[4];
      cpu::binary_cross_entropy_forward({2, 1, 2, targets, workspace}, logits, statistics);
      const double expected = 2 * std::log1p(std::exp(-static_cast<double>(x)));
      EXPECT_TRUE(std::abs(statistics[0] - expected) <= 8 * kEps * expected)
          << target << " " << statistics[0];
    }
  });
}

TEST(BinaryCrossEntropyTest, NanReachesTheLoss) {
  test::for_each_target([](const std::string& target) {
    std::vector<float> x(20, 1.0f);
    const std::vector<float> targets(20, 0.0f);
    x[17] = std::numeric_limits<float>::quiet_NaN();
    cpu::LossRow workspace;
    double statistics[4];
    cpu::binary_cross_entropy_forward({1, 20, 1, targets.data(), &workspace}, x.data(), statistics);
    EXPECT_TRUE(std::isnan(statistics[0])) << target;
  });
}

TEST(BinaryCrossEntropyTest, Reproducible) {
  const int64_t rows = 3000, outputs = 21;
  std::vector<float> logits(rows * outputs), targets(rows * outputs);
  test::fill_uniform(logits, -3, 3, 1);
  test::fill_uniform(targets, 0, 1, 2);
  std::vector<cpu::LossRow> workspace(rows);
  test::expect_reproducible<double>(
      [&] {
        std::vector<float> x(logits);
        double statistics[4];
        cpu::binary_cross_entropy_forward_backward(
            {rows, outputs, rows, targets.data(), workspace.data()}, x.data(), 0.3f, statistics);
        std::vector<double> result(statistics, statistics + 4);
        result.insert(result.end(), x.begin(), x.end());
        return result;
      },
      "binary_cross_entropy");
}

}  // namespace
}  // namespace lockstep
