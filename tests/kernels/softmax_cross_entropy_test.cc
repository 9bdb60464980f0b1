// Catches: overflow of large logits, a wrong smoothing term, ignored or padding rows that count or
// have a gradient, an argmax that breaks ties otherwise, precision lost over a large vocabulary,
// NaN swallowed, statistics that depend on threads; a second target of the wrong row, or that
// counts with a wrong share.

#include "runtime/cpu/ops/softmax_cross_entropy.h"

#include "tests/reference/kernel_test.h"
#include "tests/reference/losses.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

TEST(SoftmaxCrossEntropyTest, DoublePrecisionGradientMatchesFiniteDifferences) {
  for (double smoothing : {0.0, 0.2}) {
    std::vector<double> x(7);
    test::fill_uniform(x, -2, 2, 1);
    test::expect_gradient([&] { return test::softmax_cross_entropy_row(x, 3, smoothing).loss; },
                          x,
                          test::softmax_cross_entropy_row(x, 3, smoothing).gradient,
                          "gradient");
    for (int64_t other : {3, 5}) {
      const auto mixed = [&] {
        return test::softmax_cross_entropy_row(x, 3, smoothing, other, 0.7);
      };
      test::expect_gradient([&] { return mixed().loss; }, x, mixed().gradient, "mixed gradient");
    }
  }
}

void check(int64_t rows,
           int64_t classes,
           int64_t valid_rows,
           float smoothing,
           float range,
           const std::string& target,
           float mix = 1) {
  const std::string where = " (" + std::to_string(rows) + ", " + std::to_string(classes) +
                            "), mix " + std::to_string(mix) + ", " + target;
  const float scale = 0.125f;
  Guarded<float> logits(rows * classes, 1);
  Guarded<int32_t> targets(rows, 1);
  test::fill_uniform(logits, -range, range, classes);
  const RngStream stream{.seed = static_cast<uint64_t>(classes)};
  for (int64_t r = 0; r < rows; ++r)
    targets[r] = bounded_from_word(philox_word(stream, r), classes);
  for (int64_t r = 2; r < rows; r += 5) targets[r] = -1;
  for (int64_t r = 1; r < rows; r += 5)
    logits[r * classes + targets[r]] = 2 * range;  // some right answers

  double loss = 0, counted = 0, correct = 0, magnitude = 0;
  std::vector<double> gradient(rows * classes);
  std::vector<double> wanted(rows * classes);  // 1 at a target
  const int64_t counted_rows = std::min(rows, valid_rows);
  for (int64_t r = 0; r < counted_rows; ++r) {
    if (targets[r] < 0) continue;
    const int64_t other = test::other_target(targets, counted_rows, r);
    const std::vector<double> x(logits.data() + r * classes, logits.data() + (r + 1) * classes);
    const test::RowLoss row = test::softmax_cross_entropy_row(x, targets[r], smoothing, other, mix);
    loss += row.loss;
    counted += 1;
    correct += row.correct;
    magnitude += std::abs(row.loss) + 4 * range;
    for (int64_t v = 0; v < classes; ++v) gradient[r * classes + v] = row.gradient[v] * scale;
    wanted[r * classes + targets[r]] = 1;
    if (mix < 1) wanted[r * classes + other] = 1;
  }
  Guarded<cpu::LossRow> workspace(cpu::loss_workspace_bytes(rows) / sizeof(cpu::LossRow));
  const cpu::SoftmaxCrossEntropy op{.rows = rows,
                                    .classes = classes,
                                    .valid_rows = valid_rows,
                                    .label_smoothing = smoothing,
                                    .targets = targets.data(),
                                    .workspace = workspace.data(),
                                    .mix = mix};
  const std::vector<float> before = logits.copy();
  Guarded<double> eval(4), train(4);
  cpu::softmax_cross_entropy_forward(op, logits.data(), eval.data());
  test::expect_same_bits(before, logits, "logits after the forward pass" + where);
  cpu::softmax_cross_entropy_forward_backward(op, logits.data(), scale, train.data());
  test::expect_same_bits(eval, train, "statistics of both passes" + where);
  // x - largest rounds by half an ulp of 4 range at most, which is what the loss and, relatively,
  // each exponential inherit; the sums of up to 256 exponentials in a lane add a random walk of 16
  // roundings (two more for exp), far below their bound of 256.
  EXPECT_TRUE(std::abs(train[0] - loss) <= 20 * kEps * magnitude)
      << where << train[0] << " expected " << loss;
  EXPECT_EQ(train[1], counted) << where;
  EXPECT_EQ(train[2], correct) << where;
  EXPECT_EQ(train[3], 0) << where;
  // The gradient's error is relative to the probability, which is the gradient itself plus, at the
  // targets, up to 1.
  const auto tolerance = [&](int64_t i) {
    const double probability = std::abs(gradient[i]) / scale + 1.0 / classes + wanted[i];
    return scale * kEps * (20 + 2 * range) * probability;
  };
  test::expect_close(logits, gradient, tolerance, "gradient" + where);
}

TEST(SoftmaxCrossEntropyTest, MatchesDoublePrecision) {
  test::for_each_target([](const std::string& target) {
    for (float smoothing : {0.0f, 0.1f}) {
      for (int64_t classes : {1, 2, 10, 15, 17, 1003}) check(7, classes, 7, smoothing, 3, target);
      check(9, 33, 4, smoothing, 3, target);      // padding rows
      check(9, 33, 100, smoothing, 3, target);    // fewer rows than are valid
      check(3, 50257, 3, smoothing, 10, target);  // several chunks, the last one short
      check(5, 40, 5, smoothing, 1000, target);   // overflows without the largest subtracted
    }
  });
}

TEST(SoftmaxCrossEntropyTest, MixedTargetsMatchDoublePrecision) {
  test::for_each_target([](const std::string& target) {
    for (float mix : {0.5f, 0.625f, 0.9f}) {
      for (float smoothing : {0.0f, 0.1f}) {
        check(8, 10, 8, smoothing, 3, target, mix);
        check(7, 2, 7, smoothing, 3, target, mix);      // often the same class; a row by itself
        check(9, 33, 4, smoothing, 3, target, mix);     // padding rows
        check(9, 33, 100, smoothing, 3, target, mix);   // fewer rows than are valid
        check(3, 5003, 3, smoothing, 10, target, mix);  // several chunks
      }
    }
  });
}

// A row without another target is as it is without mixup, bit for bit.
TEST(SoftmaxCrossEntropyTest, TheSameTargetTwiceIsOne) {
  const int64_t classes = 40;
  const std::vector<int32_t> targets{7, 3, 7};
  std::vector<float> plain(3 * classes);
  test::fill_uniform(plain, -3, 3, 1);
  std::vector<float> mixed(plain);
  std::vector<cpu::LossRow> workspace(3);
  double plain_statistics[4], mixed_statistics[4];
  cpu::SoftmaxCrossEntropy op{3, classes, 3, 0.1f, targets.data(), workspace.data()};
  cpu::softmax_cross_entropy_forward_backward(op, plain.data(), 0.5f, plain_statistics);
  op.mix = 0.7f;
  cpu::softmax_cross_entropy_forward_backward(op, mixed.data(), 0.5f, mixed_statistics);
  test::expect_same_bits(plain, mixed, "gradient");
  EXPECT_EQ(plain_statistics[0], mixed_statistics[0]);
}

TEST(SoftmaxCrossEntropyTest, FirstOfEqualLogitsWins) {
  const int64_t classes = 40;
  std::vector<float> logits(4 * classes, 0.5f);
  logits[2 * classes + 20] = logits[2 * classes + 35] = 1;
  logits[3 * classes + 20] = logits[3 * classes + 35] = 1;
  const std::vector<int32_t> targets{0, 1, 20, 35};  // right, wrong, right, wrong
  std::vector<cpu::LossRow> workspace(4);
  double statistics[4];
  test::for_each_target([&](const std::string& target) {
    cpu::softmax_cross_entropy_forward(
        {4, classes, 4, 0, targets.data(), workspace.data()}, logits.data(), statistics);
    for (int row = 0; row < 4; ++row)
      EXPECT_EQ(workspace[row].correct, row % 2 == 0 ? 1 : 0) << target << " row " << row;
    EXPECT_EQ(statistics[2], 2) << target;
  });
}

TEST(SoftmaxCrossEntropyTest, InfinitiesAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  test::for_each_target([&](const std::string& target) {
    std::vector<cpu::LossRow> workspace(1);
    double statistics[4];
    const std::vector<int32_t> targets{1};
    const cpu::SoftmaxCrossEntropy op{1, 3, 1, 0, targets.data(), workspace.data()};
    std::vector<float> excluded{-infinity, 2, 2};  // -infinity takes no part
    cpu::softmax_cross_entropy_forward_backward(op, excluded.data(), 1, statistics);
    EXPECT_NEAR(statistics[0], std::log(2.0), 4 * kEps) << target;
    test::expect_close(
        excluded, std::vector<double>{0, -0.5, 0.5}, 4 * kEps, "gradient, " + target);
    for (int place = 0; place < 3; ++place) {
      std::vector<float> broken{0, 1, 2};
      broken[place] = std::numeric_limits<float>::quiet_NaN();
      cpu::softmax_cross_entropy_forward_backward(op, broken.data(), 1, statistics);
      EXPECT_TRUE(std::isnan(statistics[0])) << target << " NaN at " << place;
      EXPECT_TRUE(std::isnan(broken[0]) && std::isnan(broken[1])) << target << " NaN at " << place;
    }
  });
}

TEST(SoftmaxCrossEntropyTest, Reproducible) {
  const int64_t rows = 60, classes = 1003;
  std::vector<float> logits(rows * classes);
  test::fill_uniform(logits, -5, 5, 1);
  std::vector<int32_t> targets(rows);
  for (int64_t r = 0; r < rows; ++r) targets[r] = static_cast<int32_t>(r * 16);
  std::vector<cpu::LossRow> workspace(rows);
  test::expect_reproducible<double>(
      [&] {
        std::vector<float> x(logits);
        double statistics[4];
        cpu::softmax_cross_entropy_forward_backward(
            {rows, classes, rows, 0.1f, targets.data(), workspace.data()},
            x.data(),
            0.5f,
            statistics);
        std::vector<double> result(statistics, statistics + 4);
        result.insert(result.end(), x.begin(), x.end());
        return result;
      },
      "softmax_cross_entropy");
}

}  // namespace
}  // namespace lockstep
