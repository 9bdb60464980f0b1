// Catches: first steps that explode without a warning, a second warning, and a warning for a run
// whose norms are large or growing only as those of normal runs are.
#include "runtime/train/guard/first_steps.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>
#include <vector>

namespace lockstep::train {
namespace {

using Steps = std::vector<std::pair<double, double>>;  // loss and norm of steps 1, 2, ...

std::vector<std::string> texts_of(const Steps& steps) {
  FirstSteps first;
  std::vector<std::string> texts;
  int64_t step = 0;
  for (const auto& [loss, norm] : steps) {
    const std::string text = first.add(++step, loss, norm);
    if (!text.empty()) texts.push_back(std::to_string(step) + ": " + text);
  }
  return texts;
}

using Texts = std::vector<std::string>;

TEST(FirstSteps, ThatExplodeAreReportedOnce) {
  EXPECT_EQ(texts_of({{0.7, 1.25}, {1, 3}, {2, 200}, {3, 3.1e7}, {4, 1e9}}),
            (Texts{"4: the gradient's norm is 3.1e+07 (1.25 in step 1)"}));
  EXPECT_EQ(texts_of({{5, 20'000}, {5, 30'000}}), (Texts{"1: the gradient's norm is 2e+04"}));
  EXPECT_EQ(texts_of({{0.5, 0.01}, {0.6, 120}}),
            (Texts{"2: the gradient's norm is 120 (0.01 in step 1)"}));
  EXPECT_EQ(texts_of({{2.3, 1}, {22, 5}, {23, 5}, {99, 5}}),
            (Texts{"3: the loss is 23 (2.3 in step 1)"}));
}

TEST(FirstSteps, OfNormalRunsAreQuiet) {
  EXPECT_EQ(texts_of({{10.8, 40}, {10.5, 900}, {10, 9'999}}), Texts{});
  EXPECT_EQ(texts_of({{1e-4, 1e-6}, {9, 99}}), Texts{});  // a head of zeros, a trained network
  EXPECT_EQ(texts_of({{900, 9'000}, {8'000, 9'000}}), Texts{});
  EXPECT_EQ(texts_of(Steps(20, {1, 1})), Texts{});
}

TEST(FirstSteps, LaterOnesAndResumedRunsAreNotLookedAt) {
  FirstSteps first;
  EXPECT_EQ(first.add(1, 1, 1), "");
  EXPECT_EQ(first.add(FirstSteps::kSteps + 1, 1e9, 1e9), "");
  FirstSteps resumed;
  EXPECT_EQ(resumed.add(7, 1e9, 1e9), "");
  FirstSteps skipped;  // FP16 skips steps, perhaps more than kSteps
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (int64_t step = 1; step <= FirstSteps::kSteps + 5; ++step)
    EXPECT_EQ(skipped.add(step, 5, nan), "");
  EXPECT_EQ(skipped.add(FirstSteps::kSteps + 6, 5, 3e6), "the gradient's norm is 3e+06");
  FirstSteps broken;
  EXPECT_EQ(broken.add(1, std::numeric_limits<double>::infinity(), 1), "");
}

}  // namespace
}  // namespace lockstep::train
