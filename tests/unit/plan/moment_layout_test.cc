// Catches: a second moment of a matrix that Muon takes, or none of another parameter; borders of
// such ranges that are off; memory that is too small for the rank that has most.
#include "runtime/plan/moment_layout.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <algorithm>

#include "runtime/plan/muon_layout.h"
#include "runtime/plan/plan.h"

namespace lockstep::plan {
namespace {

// Two matrices that touch, a bias, and one more matrix at the end.
ParameterLayout make_parameters() {
  ParameterLayout layout;
  const auto add = [&](const char* name, Shape shape) {
    ParameterSlot& slot = layout.slots.emplace_back();
    slot.name = name;
    slot.shape = shape;
    slot.offset = layout.elements;
    slot.elements = shape.elements();
    layout.elements += (slot.elements + 63) / 64 * 64;
  };
  add("norm.weight", {70});
  add("a.weight", {10, 10});
  add("b.weight", {9, 30});
  add("b.bias", {9});
  add("wte.weight", {40, 10});
  add("c.weight", {16, 20});
  layout.elements = collectives::padded_elements(layout.elements, 4);
  layout.statistics_begin = layout.elements;
  return layout;
}

OptimizerConfig muon() {
  OptimizerConfig config;
  config.kind = MuonConfig();
  return config;
}

TEST(MomentLayout, MatricesOfMuonHaveOne) {
  const ParameterLayout layout = make_parameters();
  const auto begin = [&](size_t slot) { return layout.slots[slot].offset; };
  EXPECT_EQ(ranges_without_last_moment(muon(), layout),
            (std::vector<collectives::Range>{{begin(1), begin(3)}, {begin(5), layout.elements}}));
  OptimizerConfig config;
  config.kind = AdamwConfig();
  EXPECT_TRUE(ranges_without_last_moment(config, layout).empty());
  config.kind = MuonConfig{.adamw_match = "weight"};
  EXPECT_TRUE(ranges_without_last_moment(config, layout).empty());
}

// All with two axes, of whatever name.
TEST(MomentLayout, MatricesOfAdafactorHaveNone) {
  const ParameterLayout layout = make_parameters();
  OptimizerConfig config;
  config.kind = AdafactorConfig();
  std::vector<collectives::Range> covered = ranges_without_last_moment(config, layout);
  for (const ParameterSlot& slot : layout.slots) {
    const bool in = std::ranges::any_of(covered, [&](const collectives::Range& range) {
      return range.begin <= slot.offset && slot.offset < range.end;
    });
    EXPECT_EQ(in, slot.shape.rank() > 1 && !slot.frozen && slot.running_momentum == 0) << slot.name;
  }
}

TEST(MomentLayout, OutsideIsWhatIsInNoHole) {
  const std::vector<collectives::Range> holes = {{10, 20}, {30, 40}};
  EXPECT_EQ(outside({0, 50}, holes),
            (std::vector<collectives::Range>{{0, 10}, {20, 30}, {40, 50}}));
  EXPECT_EQ(outside({10, 40}, holes), (std::vector<collectives::Range>{{20, 30}}));
  EXPECT_EQ(outside({15, 35}, holes), (std::vector<collectives::Range>{{20, 30}}));
  EXPECT_EQ(outside({12, 18}, holes), std::vector<collectives::Range>());
  EXPECT_EQ(outside({20, 30}, holes), (std::vector<collectives::Range>{{20, 30}}));
  EXPECT_EQ(outside({40, 41}, holes), (std::vector<collectives::Range>{{40, 41}}));
  EXPECT_EQ(outside({0, 50}, {}), (std::vector<collectives::Range>{{0, 50}}));
}

TEST(MomentLayout, TheMostIsCountedElementByElement) {
  const ParameterLayout layout = make_parameters();
  const std::vector<collectives::Range> holes = ranges_without_last_moment(muon(), layout);
  const std::vector<collectives::Range> buckets =
      collectives::make_buckets({0, layout.elements}, 4, 512);
  ASSERT_GT(buckets.size(), 1u);
  for (const int parts : {1, 2, 4}) {
    int64_t most = 0, least = layout.elements;
    for (int part = 0; part < parts; ++part) {
      int64_t count = 0;
      for (const collectives::Range& range : collectives::owned_ranges(buckets, part, parts)) {
        for (int64_t i = range.begin; i < range.end; ++i)
          count += std::ranges::none_of(holes, [&](const collectives::Range& hole) {
            return hole.begin <= i && i < hole.end;
          });
      }
      most = std::max(most, count);
      least = std::min(least, count);
    }
    EXPECT_EQ(max_outside(buckets, holes, parts), most);
    if (parts == 4) {
      EXPECT_LT(least, most) << "the test has parts that differ";
    }
  }
}

}  // namespace
}  // namespace lockstep::plan
