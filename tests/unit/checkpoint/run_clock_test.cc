// Catches: a run that stops too late before its time is over, or long before that, and checkpoints
// that the clock does not ask for.
#include "runtime/checkpoint/run/run_clock.h"

#include <gtest/gtest.h>
#include <time.h>
#include <unistd.h>

#include <map>

#include "runtime/base/log.h"
#include "runtime/base/time.h"

namespace lockstep::checkpoint {
namespace {

class RunClockTest : public ::testing::Test {
 protected:
  RunClockTest() { init_log("error", 0, 1); }
};

RunClockOptions options_of(const RunConfig& config, const std::string& slurm_end = "") {
  return run_clock_options(config, 100e6, [&](const char* name) {
    return name == std::string("SLURM_JOB_END_TIME") && !slurm_end.empty() ? slurm_end.c_str()
                                                                           : nullptr;
  });
}

TEST_F(RunClockTest, TheEarlierLimitCounts) {
  RunConfig config;
  EXPECT_EQ(options_of(config).end_ms, std::nullopt);
  config.train.walltime_minutes = 10;
  EXPECT_EQ(options_of(config).end_ms, process_begin_ms + 600'000);
  const std::string soon = std::to_string(::time(nullptr) + 60),
                    late = std::to_string(::time(nullptr) + 6'000);
  EXPECT_NEAR(*options_of(config, soon).end_ms, now_ms() + 60'000, 3'000);
  EXPECT_EQ(options_of(config, late).end_ms, process_begin_ms + 600'000);
  EXPECT_EQ(options_of(config, "tomorrow").end_ms, process_begin_ms + 600'000);
}

TEST_F(RunClockTest, StopsWhenAStepAndASaveWouldComeTooLate) {
  RunClock early({.end_ms = now_ms() + 60'000, .margin_s = 10, .save_s = 49});
  EXPECT_FALSE(early.must_stop());
  early.save_took(0.5);  // less than was feared
  EXPECT_FALSE(early.must_stop());
  early.save_took(51);
  EXPECT_TRUE(early.must_stop());
  EXPECT_FALSE(RunClock({}).must_stop()) << "without a limit";
}

TEST_F(RunClockTest, TheLongestStepCounts) {
  RunClock clock({.end_ms = now_ms() + 400, .save_s = 0});
  EXPECT_FALSE(clock.must_stop());
  ::usleep(220'000);
  EXPECT_TRUE(clock.must_stop()) << "the next step may take as long";
}

TEST_F(RunClockTest, ACheckpointIsDueSomeTimeAfterTheLastOne) {
  EXPECT_FALSE(RunClock({}).save_due());
  RunClockOptions often;
  often.every_s = 0.05;
  RunClock clock(often);
  EXPECT_FALSE(clock.save_due());
  ::usleep(60'000);
  EXPECT_TRUE(clock.save_due());
  clock.save_begins();
  EXPECT_FALSE(clock.save_due());
}

}  // namespace
}  // namespace lockstep::checkpoint
