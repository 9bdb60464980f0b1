// Catches: a wrong factor (per output or per row), padding rows that count or have a gradient, NaN
// swallowed, statistics that depend on threads or vector width.

#include "runtime/cpu/ops/mean_squared_error.h"

#include "tests/reference/kernel_test.h"
#include "tests/reference/losses.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

TEST(MeanSquaredErrorTest, DoublePrecisionGradientMatchesFiniteDifferences) {
  std::vector<double> y(7), target(7);
  test::fill_uniform(y, -2, 2, 1);
  test::fill_uniform(target, -2, 2, 2);
  test::expect_gradient([&] { return test::mean_squared_error_row(y, target).loss; },
                        y,
                        test::mean_squared_error_row(y, target).gradient,
                        "gradient");
}

TEST(MeanSquaredErrorTest, MatchesDoublePrecision) {
  test::for_each_target([](const std::string& target_name) {
    for (int64_t outputs : {1, 15, 17, 1003}) {
      for (int64_t valid_rows : {0, 3, 5, 9}) {
        const int64_t rows = 5;
        const float scale = 0.25f;
        const std::string where = " (" + std::to_string(outputs) + " outputs), " + target_name;
        Guarded<float> y(rows * outputs, 1), targets(rows * outputs, 3);
        test::fill_uniform(y, -3, 3, 1);
        test::fill_uniform(targets, -3, 3, 2);
        double loss = 0;
        std::vector<double> gradient(rows * outputs);
        for (int64_t r = 0; r < std::min(rows, valid_rows); ++r) {
          const test::RowLoss row = test::mean_squared_error_row(
              {y.data() + r * outputs, y.data() + (r + 1) * outputs},
              {targets.data() + r * outputs, targets.data() + (r + 1) * outputs});
          loss += row.loss;
          for (int64_t i = 0; i < outputs; ++i) gradient[r * outputs + i] = row.gradient[i] * scale;
        }
        Guarded<cpu::LossRow> workspace(rows);
        const cpu::MeanSquaredError op{rows, outputs, valid_rows, targets.data(), workspace.data()};
        const std::vector<float> before = y.copy();
        Guarded<double> eval(4), train(4);
        cpu::mean_squared_error_forward(op, y.data(), eval.data());
        test::expect_same_bits(before, y, "predictions after the forward pass" + where);
        cpu::mean_squared_error_forward_backward(op, y.data(), scale, train.data());
        test::expect_same_bits(eval, train, "statistics of both passes" + where);
        // The difference and its square round, then up to 63 additions in a lane and 4 across.
        EXPECT_TRUE(std::abs(train[0] - loss) <= (2 + 67 / 2.0) * kEps * loss)
            << where << train[0] << " expected " << loss;
        EXPECT_EQ(train[1], std::min(rows, valid_rows)) << where;
        EXPECT_EQ(train[2], 0) << where;
        EXPECT_EQ(train[3], 0) << where;
        test::expect_close(
            y,
            gradient,
            [&](int64_t i) { return 2 * kEps * std::abs(gradient[i]); },
            "gradient" + where);
      }
    }
  });
}

TEST(MeanSquaredErrorTest, NanReachesTheLoss) {
  std::vector<float> y(20, 1.0f);
  const std::vector<float> targets(20, 0.0f);
  y[17] = std::numeric_limits<float>::quiet_NaN();
  cpu::LossRow workspace;
  double statistics[4];
  cpu::mean_squared_error_forward({1, 20, 1, targets.data(), &workspace}, y.data(), statistics);
  EXPECT_TRUE(std::isnan(statistics[0]));
}

TEST(MeanSquaredErrorTest, Reproducible) {
  const int64_t rows = 3000, outputs = 21;
  std::vector<float> y(rows * outputs), targets(rows * outputs);
  test::fill_uniform(y, -3, 3, 1);
  test::fill_uniform(targets, -3, 3, 2);
  std::vector<cpu::LossRow> workspace(rows);
  test::expect_reproducible<double>(
      [&] {
        std::vector<float> x(y);
        double statistics[4];
        cpu::mean_squared_error_forward_backward(
            {rows, outputs, rows, targets.data(), workspace.data()}, x.data(), 0.3f, statistics);
        std::vector<double> result(statistics, statistics + 4);
        result.insert(result.end(), x.begin(), x.end());
        return result;
      },
      "mean_squared_error");
}

}  // namespace
}  // namespace lockstep
