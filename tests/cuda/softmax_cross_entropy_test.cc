// Catches: overflow of large logits, a wrong smoothing term, ignored or padding rows that count or
// have a gradient, an argmax that breaks ties otherwise, elements lost where a row begins or ends
// between multiples of 16 bytes, a logit read after its gradient was written over it; a second
// target of the wrong row, or that counts with a wrong share.

#include "runtime/cuda/ops/softmax_cross_entropy.h"

#include "tests/fibers/kernel_test.h"
#include "tests/reference/losses.h"

namespace lockstep {
namespace {

using test::Guarded;
using test::kEps;

struct Case {
  int64_t rows, classes, stride, valid_rows;
  float smoothing, range, mix = 1;
};

template <typename T>
std::vector<std::byte> check(const Case& at, const std::string& order) {
  const auto [rows, classes, stride, valid_rows, smoothing, range, mix] = at;
  const std::string where = " (" + std::to_string(rows) + ", " + std::to_string(classes) +
                            "), mix " + std::to_string(mix) + ", " + order;
  const float scale = 0.125f;
  Guarded<T> logits(rows * stride);
  Guarded<int32_t> targets(rows, 1);
  test::fill_stored(logits, -range, range, static_cast<uint64_t>(classes));
  const RngStream stream{.seed = static_cast<uint64_t>(classes)};
  for (int64_t r = 0; r < rows; ++r)
    targets[r] = static_cast<int32_t>(bounded_from_word(
        philox_word(stream, static_cast<uint64_t>(r)), static_cast<uint32_t>(classes)));
  for (int64_t r = 2; r < rows; r += 5) targets[r] = -1;
  for (int64_t r = 1; r < rows; r += 5)
    logits[r * stride + targets[r]] = round_to<T>(2 * range);  // some right answers

  double loss = 0, counted = 0, correct = 0, magnitude = 0;
  std::vector<double> gradient(static_cast<size_t>(rows * stride));
  const int64_t counted_rows = std::min(rows, valid_rows);
  for (int64_t r = 0; r < counted_rows; ++r) {
    if (targets[r] < 0) continue;
    const int64_t other = test::other_target(targets, counted_rows, r);
    std::vector<double> x;
    for (int64_t v = 0; v < classes; ++v) x.push_back(to_float(logits[r * stride + v]));
    const test::RowLoss row = test::softmax_cross_entropy_row(x, targets[r], smoothing, other, mix);
    loss += row.loss;
    counted += 1;
    correct += row.correct;
    magnitude += std::abs(row.loss) + 4 * range;
    for (int64_t v = 0; v < classes; ++v)
      gradient[static_cast<size_t>(r * stride + v)] = row.gradient[static_cast<size_t>(v)] * scale;
  }
  Guarded<cuda::RowLoss> workspace(rows);
  Guarded<double> eval(4), train(4);
  const LaneContext lane{.valid_rows = valid_rows, .gradient_scale = scale, .mix = mix};
  cuda::SoftmaxCrossEntropy<T> op{.rows = rows,
                                  .classes = classes,
                                  .stride = stride,
                                  .lane = &lane,
                                  .label_smoothing = smoothing,
                                  .targets = targets.data(),
                                  .workspace = workspace.data(),
                                  .statistics = eval.data()};
  const std::vector<std::byte> before = test::bytes_of(logits);
  cuda::softmax_cross_entropy_forward(op, logits.data(), nullptr);
  EXPECT_EQ(before, test::bytes_of(logits)) << "logits after the forward pass" << where;
  op.statistics = train.data();
  cuda::softmax_cross_entropy_forward_backward(op, logits.data(), nullptr);
  test::expect_same_bits(eval, train, "statistics of both passes" + where);
  EXPECT_TRUE(std::abs(train[0] - loss) <= 20 * kEps * magnitude)
      << where << train[0] << " expected " << loss;
  EXPECT_EQ(train[1], counted) << where;
  EXPECT_EQ(train[2], correct) << where;
  EXPECT_EQ(train[3], 0) << where;
  // Relative to the probability, which is the gradient itself plus, at the target, up to 1; then
  // T's rounding.
  test::expect_close(
      test::as_doubles(logits),
      gradient,
      [&](int64_t i) {
        const double probability = std::abs(gradient[static_cast<size_t>(i)]) + scale;
        return 30 * kEps * (1 + range) * probability +
               test::kSpacing<T> / 2 * std::abs(gradient[static_cast<size_t>(i)]) + 0x1p-25;
      },
      "gradient" + where);
  return test::bytes_of(logits, train);
}

template <typename T>
class CudaSoftmaxCrossEntropyTest : public ::testing::Test {};
TYPED_TEST_SUITE(CudaSoftmaxCrossEntropyTest, test::StoredTypes);

TYPED_TEST(CudaSoftmaxCrossEntropyTest, MatchesDoublePrecisionInAnyOrder) {
  const auto all_orders = [](const Case& at) {
    test::for_each_order([&](const std::string& order) { return check<TypeParam>(at, order); });
  };
  all_orders({7, 10, 10, 7, 0.0f, 2});
  all_orders({7, 10, 16, 5, 0.1f, 2});
  all_orders({3, 1, 1, 3, 0.0f, 2});
  all_orders({6, 257, 257, 6, 0.2f, 30});  // an odd length: each row begins elsewhere
  all_orders({3, 5003, 5003, 3, 0.1f, 10});
  all_orders({2, 4096, 4104, 2, 0.0f, 10});
  all_orders({8, 10, 16, 8, 0.1f, 2, 0.625f});
  all_orders({9, 33, 33, 5, 0.0f, 2, 0.5f});
  all_orders({6, 2, 2, 100, 0.1f, 2, 0.9f});
  all_orders({3, 5003, 5003, 3, 0.1f, 10, 0.75f});
}

TYPED_TEST(CudaSoftmaxCrossEntropyTest, TheFirstOfEqualLogitsIsThePrediction) {
  for (int64_t classes : {9, 3000}) {
    Guarded<TypeParam> logits(2 * classes, 3);
    Guarded<int32_t> targets(2);
    Guarded<cuda::RowLoss> workspace(2);
    Guarded<double> statistics(4);
    for (auto& logit : logits) logit = round_to<TypeParam>(1.5f);
    targets[0] = 0;
    targets[1] = 1;
    const LaneContext lane{.valid_rows = 2};
    cuda::SoftmaxCrossEntropy<TypeParam> op{.rows = 2,
                                            .classes = classes,
                                            .stride = classes,
                                            .lane = &lane,
                                            .label_smoothing = 0,
                                            .targets = targets.data(),
                                            .workspace = workspace.data(),
                                            .statistics = statistics.data()};
    const TypeParam* read = logits.data();
    cuda::softmax_cross_entropy_forward(op, read, nullptr);
    EXPECT_EQ(statistics[2], 1);
  }
}

}  // namespace
}  // namespace lockstep
