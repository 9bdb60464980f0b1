// Catches: slow clocks that are not found or are reported at every step, values that a device does
// not report taken for zero, and energy or power that is summed wrongly.
#include "runtime/train/device_watch.h"

#include <gtest/gtest.h>

#include "tests/reference/text_checks.h"

namespace lockstep::train {
namespace {

using Lines = std::vector<std::string>;

class Monitor : public exec::DeviceMonitor {
 public:
  exec::DeviceState state(double) override { return states[std::min(next++, states.size() - 1)]; }
  std::string description() const override { return "GPU"; }
  std::string words_for_limits(uint64_t limits) const override { return limits == 0 ? "" : "hot"; }
  std::vector<exec::DeviceState> states;
  size_t next = 0;
};

exec::DeviceState at(double clock_mhz) {
  exec::DeviceState state;
  state.has_monitor = 1;
  state.clock_mhz = clock_mhz;
  state.max_clock_mhz = 2000;
  state.busy = 1;
  return state;
}

class SlowClocksTest : public ::testing::Test {
 protected:
  Lines judge(const std::vector<double>& clocks) {
    std::vector<exec::DeviceState> states;
    for (const double clock : clocks) states.push_back(at(clock));
    return judge(states);
  }
  Lines judge(const std::vector<exec::DeviceState>& states) {
    Lines names;
    for (size_t r = 0; r < states.size(); ++r) names.push_back("rank " + std::to_string(r));
    return clocks_.judge(states, names, monitor_, now_ms_ += pause_ms_, last_);
  }
  double now_ms_ = 0, pause_ms_ = 3000;
  bool last_ = false;
  SlowClocks clocks_;
  Monitor monitor_;
};

TEST_F(SlowClocksTest, ClocksCountAfterAWhileUnderLoad) {
  pause_ms_ = 1000;
  for (int second = 0; second < 3; ++second) EXPECT_EQ(judge({1500, 2000}), Lines{}) << second;
  EXPECT_EQ(judge({1500, 2000}).size(), 1u);
  clocks_ = {};
  last_ = true;
  EXPECT_EQ(judge({1500, 2000}).size(), 1u) << "or at the end of a short run";
}

TEST_F(SlowClocksTest, NamesTheSlowRankOnceUntilItRecovers) {
  EXPECT_EQ(judge({2000, 2000, 1901, 2000}), Lines{});
  const Lines lines = judge({2000, 2000, 1800, 2000});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_CONTAINS(lines[0],
                  "rank 2: its clock of 1800 MHz is 10% below the other ranks' median of 2000 MHz");
  EXPECT_CONTAINS(lines[0], "no reason is reported");
  EXPECT_EQ(judge({2000, 2000, 1700, 2000}), Lines{});
  EXPECT_EQ(judge({2000, 2000, 1930, 2000}), Lines{}) << "not yet recovered";
  EXPECT_EQ(judge({2000, 2000, 1960, 2000}),
            Lines{"rank 2: its clock is up to the others' again, 1960 MHz"});
  EXPECT_EQ(judge({2000, 2000, 1800, 2000}).size(), 1u);
}

TEST_F(SlowClocksTest, TwoRanksAreComparedWithEachOther) {
  last_ = true;
  EXPECT_EQ(judge({1500, 2000}).size(), 1u);
  EXPECT_EQ(judge(std::vector<double>{1500}), Lines{});
}

TEST_F(SlowClocksTest, IdleUnknownAndOtherModelsDoNotCount) {
  last_ = true;
  std::vector<exec::DeviceState> states = {at(2000), at(300), at(-1), at(1400), at(2000)};
  states[1].busy = 0.4;
  states[3].max_clock_mhz = 1410;
  EXPECT_EQ(judge(states), Lines{});
}

TEST_F(SlowClocksTest, ManySlowRanksAreCounted) {
  last_ = true;
  std::vector<double> clocks(40, 2000);
  for (size_t r = 0; r < 12; ++r) clocks[r] = 1000;
  const Lines lines = judge(clocks);
  ASSERT_EQ(lines.size(), 9u);
  EXPECT_EQ(lines.back(), "the clocks of 4 more ranks are as low");
}

TEST(DeviceWatch, WithoutAMonitorNothingIsDue) {
  const auto self = collectives::make_self_communicator();
  const std::string host = "here";
  DeviceWatch watch(*self, nullptr, 0, {&host, 1});
  EXPECT_FALSE(watch.is_due(1, 0, true));
  EXPECT_FALSE(watch.gather(false));
  EXPECT_TRUE(watch.reports().empty());
}

TEST(DeviceWatch, AMonitorThatCanReadNothingIsNotAskedAgain) {
  const auto self = collectives::make_self_communicator();
  const std::string host = "here";
  Monitor monitor;
  monitor.states = {exec::DeviceState{}};
  DeviceWatch watch(*self, &monitor, 0, {&host, 1});
  EXPECT_FALSE(watch.is_due(1, 1, true));
  EXPECT_EQ(monitor.next, 1u);
}

TEST(DeviceWatch, RecordsAndReports) {
  const auto self = collectives::make_self_communicator();
  const std::string host = "here";
  Monitor monitor;
  exec::DeviceState first = at(1900), second = at(1500);
  first.power_w = 400;
  first.used_bytes = 3000;
  first.energy_j = 100;
  second = first;
  second.clock_mhz = 1500;
  second.power_w = 600;
  second.energy_j = 3.6e6;
  second.limits = 8;
  second.fault = 31;
  monitor.states = {first, first, second};
  DeviceWatch watch(*self, &monitor, 1000, {&host, 1});
  EXPECT_TRUE(watch.is_due(5, 5, false));
  EXPECT_FALSE(watch.is_due(6, 5, false));
  EXPECT_TRUE(watch.is_due(6, 5, true));
  const auto record = watch.gather(false);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->clock_mhz_min, 1900);
  EXPECT_EQ(record->memory_used_bytes, 3000);
  EXPECT_EQ(record->memory_beside_plan_bytes, 2000);
  EXPECT_EQ(record->temperature_c_max, -1);
  EXPECT_EQ(record->ecc_corrected, -1);
  EXPECT_EQ(record->xid, -1);
  EXPECT_EQ(record->limits, "");
  EXPECT_EQ(watch.gather(true)->xid, 31);
  const std::vector<DeviceReport> reports = watch.reports();
  EXPECT_EQ(words_for(reports),
            "GPU: 1500 to 1900 MHz, 500 W, 1 kWh; clock held down: rank 0 (hot)");
  EXPECT_EQ(words_for(std::vector<DeviceReport>{reports[0], reports[0]}),
            "GPUs: 1500 to 1900 MHz (lowest on rank 0), 1000 W, 2 kWh; clock held down: rank 0 "
            "(hot), rank 1 (hot)");
  EXPECT_EQ(words_for(std::vector<DeviceReport>(2)), "");
}

}  // namespace
}  // namespace lockstep::train
