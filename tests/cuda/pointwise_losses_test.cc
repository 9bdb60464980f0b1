// Catches: a wrong formula or gradient, overflow of large logits, padding rows that count or have a
// gradient, outputs lost beyond a warp.

#include "runtime/cuda/ops/pointwise_losses.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/losses.h"

namespace lockstep {
namespace {

using cuda::PointwiseLossKind;
using test::Guarded;
using test::kEps;

template <typename T>
std::vector<std::byte> check(
    PointwiseLossKind kind, int64_t rows, int64_t outputs, int64_t valid_rows, float range) {
  const bool squared = kind == PointwiseLossKind::kMeanSquaredError;
  Guarded<T> x(rows * outputs);
  Guarded<float> targets(rows * outputs);
  test::fill_stored(x, -range, range, 1);
  test::fill_uniform(targets, 0, 1, 2);
  for (int64_t i = 0; !squared && i < targets.size(); i += 2) targets[i] = targets[i] > 0.5f;

  const float scale = 0.25f;
  double loss = 0, correct = 0;
  std::vector<double> gradient(static_cast<size_t>(rows * outputs));
  for (int64_t r = 0; r < std::min(rows, valid_rows); ++r) {
    std::vector<double> row, target;
    for (int64_t i = r * outputs; i < (r + 1) * outputs; ++i) {
      row.push_back(to_float(x[i]));
      target.push_back(targets[i]);
    }
    const test::RowLoss expected = squared ? test::mean_squared_error_row(row, target)
                                           : test::binary_cross_entropy_row(row, target);
    loss += expected.loss;
    correct += expected.correct;
    for (int64_t i = 0; i < outputs; ++i)
      gradient[static_cast<size_t>(r * outputs + i)] =
          expected.gradient[static_cast<size_t>(i)] * scale;
  }
  Guarded<cuda::RowLoss> workspace(rows);
  Guarded<double> eval(4), train(4);
  const LaneContext lane{.valid_rows = valid_rows, .gradient_scale = scale};
  cuda::PointwiseLoss op{.kind = kind,
                         .rows = rows,
                         .outputs = outputs,
                         .lane = &lane,
                         .targets = targets.data(),
                         .workspace = workspace.data(),
                         .statistics = eval.data()};
  const T* read = x.data();
  cuda::pointwise_loss_forward(op, read, nullptr);
  op.statistics = train.data();
  cuda::pointwise_loss_forward_backward(op, x.data(), nullptr);
  test::expect_same_bits(eval, train, "statistics of both passes");
  const double eps = kEps * (8 + static_cast<double>(outputs) / 16);
  EXPECT_NEAR(train[0], loss, 4 * eps * (loss + static_cast<double>(rows)));
  EXPECT_EQ(train[1], static_cast<double>(std::min(rows, valid_rows)));
  EXPECT_NEAR(train[2], correct, 4 * eps * static_cast<double>(rows));
  test::expect_close(
      test::as_doubles(x),
      gradient,
      [&](int64_t i) {
        const double value = std::abs(gradient[static_cast<size_t>(i)]);
        return 8 * kEps * (value + scale) + test::kSpacing<T> / 2 * value + 0x1p-25;
      },
      "gradient");
  return test::bytes_of(x, train);
}

template <typename T>
class CudaPointwiseLossesTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaPointwiseLossesTest, test::StoredTypes);

TYPED_TEST(CudaPointwiseLossesTest, MatchDoublePrecisionInAnyOrder) {
  for (auto kind : {PointwiseLossKind::kMeanSquaredError, PointwiseLossKind::kBinaryCrossEntropy}) {
    test::for_each_order([&](const std::string&) { return check<TypeParam>(kind, 1, 1, 1, 2); });
    test::for_each_order([&](const std::string&) { return check<TypeParam>(kind, 9, 1, 7, 2); });
    test::for_each_order([&](const std::string&) { return check<TypeParam>(kind, 5, 71, 5, 2); });
    test::for_each_order([&](const std::string&) { return check<TypeParam>(kind, 4, 3, 4, 120); });
  }
}

}  // namespace
}  // namespace lockstep
