// Catches: what another run did in a folder, counted as this one's; records of another run that are
// moved; starts/ without end, or whose first or newest starts are gone.
#include "launcher/launch/progress.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"
#include "runtime/base/host.h"
#include "runtime/train/folder/run_end.h"
#include "runtime/train/folder/run_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

class ProgressOf : public ::testing::Test {
 protected:
  ProgressOf() {
    std::string name = fs::temp_directory_path() / "lockstep-progress-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    fs::create_directory(folder_ / "flight");
  }
  ~ProgressOf() override { fs::remove_all(folder_); }
  // A rank that has the number of this process, if it is `own`.
  StartEnd ended(int code, bool own) const {
    StartEnd end;
    end.ranks.push_back({0, host_name(), own ? ::getpid() : 1, code, "", "localhost"});
    return end;
  }
  fs::path folder_;
};

TEST_F(ProgressOf, AnotherRunIsNotCounted) {
  Progress progress(folder_);
  progress.begin_start();
  FlightRecorder::here().open(folder_ / "flight", 0, 1);  // the other run's
  FlightRecorder::here().begin_step(3);
  FlightRecorder::here().begin_step(9);
  train::write_run_end(folder_, {train::RunEnd::Reason::kLastStep, 10, 10, "0123456789abcdef"});
  StartEnd refused = ended(4, false);
  progress.complete(refused);
  EXPECT_FALSE(progress.is_ours(refused));
  EXPECT_FALSE(refused.done);
  EXPECT_FALSE(refused.made_steps);
  EXPECT_EQ(progress.lost(refused).steps, 0);
  StartEnd own = ended(137, true);
  progress.complete(own);
  EXPECT_TRUE(own.done);
  EXPECT_TRUE(own.made_steps);
  EXPECT_EQ(progress.lost(own).steps, 9);
}

TEST_F(ProgressOf, RanksThatGotASignalAreRead) {
  Progress progress(folder_);
  progress.begin_start();
  StartEnd end = ended(75, true);
  train::write_run_end(folder_,
                       {train::RunEnd::Reason::kPreempted, 5, 10, "0123456789abcdef", {0, 3}});
  progress.complete(end);
  EXPECT_FALSE(end.done);
  EXPECT_EQ(end.signalled, (std::vector<int>{0, 3}));
}

TEST_F(ProgressOf, AStartWithoutAStepHasMadeNone) {
  Progress progress(folder_);
  progress.begin_start();
  FlightRecorder::here().open(folder_ / "flight", 0, 1);
  StartEnd end = ended(137, true);
  progress.complete(end);
  EXPECT_FALSE(end.made_steps) << "before the first";
  FlightRecorder::here().begin_step(500);
  progress.complete(end);
  EXPECT_FALSE(end.made_steps) << "in step 501 of a run that went on from 500";
  FlightRecorder::here().begin_step(501);
  progress.complete(end);
  EXPECT_TRUE(end.made_steps);
}

TEST_F(ProgressOf, AFolderOfAnotherRunIsLeftAlone) {
  Progress progress(folder_);
  progress.begin_start();
  FlightRecorder::here().open(folder_ / "flight", 0, 1);
  const train::RunFolder other(folder_);
  EXPECT_THROW(progress.keep_post_mortem(ended(137, false), {}, ""), IoError);
  EXPECT_FALSE(fs::exists(folder_ / "starts"));
  EXPECT_TRUE(fs::exists(folder_ / "flight" / "rank-0.ring"));
  progress.keep_post_mortem(ended(137, true), {}, "");
  EXPECT_TRUE(fs::exists(folder_ / "starts" / "0001" / "flight" / "rank-0.ring"));
}

TEST_F(ProgressOf, TheFirstAndTheNewestStartsAreKept) {
  Progress progress(folder_);
  fs::create_directories(folder_ / "starts" / "notes");  // somebody's
  for (int start = 1; start <= 26; ++start)
    EXPECT_EQ(progress.keep_post_mortem(ended(137, false), {}, "").filename(),
              fmt::format("{:04}", start));
  for (int start = 1; start <= 26; ++start)
    EXPECT_EQ(fs::exists(folder_ / "starts" / fmt::format("{:04}", start)), start <= 3 || start > 6)
        << start;
  EXPECT_TRUE(fs::exists(folder_ / "starts" / "notes"));
}

TEST_F(ProgressOf, TimeOfStepsWithoutALineCounts) {
  std::ofstream(folder_ / "metrics.jsonl")
      << "{\"step\": 999999, \"step_ms\": 2000.000}\n"
         "{\"step\": 1000000, \"step_ms\": 2000.000}\n"
         "{\"step\": 1000010, \"step_ms\": 1000.000, \"left_out_steps\": 9, "
         "\"left_out_ms\": 10000.500}\n"
         "{\"step\": 1000012, \"step_ms\": 1000.000, \"left_out_steps\": 1, "
         "\"left_out_ms\": 1000.000}\n";
  const Progress progress(folder_);
  EXPECT_DOUBLE_EQ(progress.seconds_of_steps(999'999, 2'000'000), 15.0005);
  EXPECT_DOUBLE_EQ(progress.seconds_of_steps(1'000'010, 2'000'000), 2);
}

}  // namespace
}  // namespace lockstep::launch
