// Catches: initial weights that depend on anything but the seed and the parameter, or with the
// wrong spread, and a hash that misses a bit or counts padding.
#include "runtime/train/state/initialize.h"
#include "runtime/train/state/weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/threads.h"

namespace lockstep::train {
namespace {

plan::ParameterLayout layout_of(int64_t second_offset) {
  plan::ParameterLayout layout;
  layout.slots.push_back({{.initializer = {graph::Initializer::Kind::kNormal, 0.02f}},
                          "normal",
                          {100, 500},
                          0,
                          50'000});
  layout.slots.push_back({{.initializer = {graph::Initializer::Kind::kUniform, 0.5f}},
                          "uniform",
                          {40'000},
                          second_offset,
                          40'000});
  layout.slots.push_back({{.initializer = {graph::Initializer::Kind::kConstant, 1.0f}},
                          "ones",
                          {8},
                          second_offset + 40'000,
                          8});
  layout.elements = second_offset + 41'000;
  return layout;
}

TEST(Initialize, HasTheSpreadThatIsAskedFor) {
  const plan::ParameterLayout layout = layout_of(50'000);
  std::vector<float> values(static_cast<size_t>(layout.elements), 0.0f);
  initialize_parameters(layout, 3, values.data());
  double sum = 0, squares = 0;
  for (int i = 0; i < 50'000; ++i) {
    sum += values[static_cast<size_t>(i)];
    squares += static_cast<double>(values[static_cast<size_t>(i)]) * values[static_cast<size_t>(i)];
  }
  // Standard errors: 0.02/sqrt(50000) = 9e-5 for the mean, 0.02/sqrt(100000) = 6e-5 for the
  // deviation; five of them.
  EXPECT_NEAR(sum / 50'000, 0, 4.5e-4);
  EXPECT_NEAR(std::sqrt(squares / 50'000), 0.02, 3e-4);
  float most = 0;
  for (int i = 50'000; i < 90'000; ++i)
    most = std::max(most, std::abs(values[static_cast<size_t>(i)]));
  EXPECT_LE(most, 0.5f);
  EXPECT_GT(most, 0.499f);
  EXPECT_EQ(values[90'000], 1.0f);
  EXPECT_EQ(values[90'008], 0.0f);
}

TEST(Initialize, WhatBeginsAnewGoesBeforeWeightsThatWereRead) {
  plan::ParameterLayout layout = layout_of(50'000);
  std::vector<float> values(static_cast<size_t>(layout.elements), 7.0f), fresh = values;
  initialize_parameters(layout, 3, fresh.data());
  layout.slots[1].initializer.overrides_weights = true;
  initialize_overrides(layout, 3, values.data());
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[60'000], fresh[60'000]);
  EXPECT_EQ(values[90'000], 7);
}

TEST(Initialize, DependsOnTheSeedAndNothingElse) {
  const plan::ParameterLayout layout = layout_of(50'000), moved = layout_of(60'000);
  std::vector<float> a(static_cast<size_t>(layout.elements)),
      b(static_cast<size_t>(moved.elements)), c = a;
  initialize_parameters(layout, 3, a.data());
  set_compute_threads(3);
  initialize_parameters(moved, 3, b.data());
  set_compute_threads(1);
  initialize_parameters(layout, 4, c.data());
  EXPECT_EQ(hash_parameters(layout, a.data()), hash_parameters(moved, b.data()));
  EXPECT_NE(hash_parameters(layout, a.data()), hash_parameters(layout, c.data()));
  b[55'000] = 9;  // padding
  EXPECT_EQ(hash_parameters(layout, a.data()), hash_parameters(moved, b.data()));
  reinterpret_cast<uint32_t&>(b[60'001]) ^= 1;
  EXPECT_NE(hash_parameters(layout, a.data()), hash_parameters(moved, b.data()));
}

}  // namespace
}  // namespace lockstep::train
