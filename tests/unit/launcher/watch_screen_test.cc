// Catches: lines wider than the terminal or more than it has, curves that are upside down, and
// states of a run that are shown as another one.

#include "launcher/watch/screen.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "launcher/watch/line_chart.h"
#include "runtime/train/folder/run_end.h"
#include "runtime/train/folder/run_folder.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::watch {
namespace {

namespace fs = std::filesystem;

constexpr double kBegin = 1'767'225'600;  // 2026-01-01 00:00:00 UTC

constexpr const char* kConfig = R"(
name: "digits"
model { mlp { hidden: [16] } }
data { synthetic { samples: 640 features: 8 classes: 3 } }
train { global_batch: 64 lanes: 2 steps: 400 }
optimizer { adamw {} }
schedule { lr: 0.001 }
)";

std::string joined_lines(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// A run of 100 of 400 steps of half a second, whose loss falls from 1 to 0.01.
class WatchScreen : public ::testing::Test {
 protected:
  WatchScreen() {
    ::setenv("TZ", "UTC", 1);
    ::tzset();
    std::ofstream(folder_.path() / "config.textproto") << kConfig;
    std::ofstream(folder_.path() / "environment.json") << R"({"planned_bytes": 71303168})";
    std::ofstream metrics(folder_.path() / "metrics.jsonl");
    for (int step = 1; step <= 100; ++step) {
      metrics << fmt::format(
          R"({{"step": {}, "time": {:.3f}, "samples": {}, "loss": {}, "lr": 0.001, "grad_norm": 0.5, )"
          R"("step_ms": 400.0, "compute_ms": 300.0, "comm_exposed_ms": 40.0, "data_wait_ms": 4.0, )"
          R"("optimizer_ms": 20.0, "samples_per_s": 160.0)",
          step,
          kBegin + 0.5 * step,
          64 * step,
          0.01 * (101 - step));
      if (step % 2 == 0)
        metrics << R"(, "slowest_rank": 3, "slowest_host": "node1", "slowest_longer_ms": 40.0)";
      if (step % 25 == 0)
        metrics << fmt::format(R"(, "eval_loss": {}, "eval_accuracy": 0.75)",
                               step == 50 ? 0.2 : 0.3);
      metrics << "}\n";
    }
    metrics.close();
    fs::create_directories(folder_.path() / "checkpoints/step-00000100");
    std::ofstream(folder_.path() / "checkpoints/step-00000100/state.textproto") << "";
    set_time("metrics.jsonl", 50);
    set_time("checkpoints/step-00000100/state.textproto", 49);
    options_.now = kBegin + 52;
  }
  void set_time(const std::string& file, double seconds) const {
    const timespec time{static_cast<time_t>(kBegin + seconds), 0};
    const timespec both[] = {time, time};
    ASSERT_EQ(::utimensat(AT_FDCWD, (folder_.path() / file).c_str(), both, 0), 0);
  }
  std::vector<std::string> lines(const FlightMoment* rank_0 = nullptr) const {
    return screen_of(launcher::RunHistory(folder_.path()), rank_0, options_);
  }
  std::string text(const FlightMoment* rank_0 = nullptr) const {
    return joined_lines(lines(rank_0));
  }

  testing::TemporaryFolder folder_;
  ScreenOptions options_;
};

TEST_F(WatchScreen, ARunThatWasKilled) {
  options_.utf8 = false;
  const std::string shown = text();
  const std::string top = shown.substr(shown.find('\n') + 1);
  EXPECT_TRUE(shown.starts_with("digits  ")) << shown;
  EXPECT_TRUE(top.starts_with(
      "stopped without an end: step 100 of 400; newest checkpoint: step 100\n"
      "step      100/400   25%  [=============                                        ]\n"
      "time      0:40 of steps  2:30 left\n"
      "loss      0.01  lr 0.001  gradient 0.5\n"
      "        1 *"))
      << shown;
  EXPECT_TRUE(
      shown.ends_with("speed     160 samples/s  400 ms a step\n"
                      "of a step compute 75%  exchange 10%  data 1%  optimizer 5%\n"
                      "waits     rank 3 is slowest  others wait 5% of the time\n"
                      "eval      step 100  accuracy 0.7500  loss 0.3000\n"
                      "best      step 50  loss 0.2000\n"
                      "saved     step 100  0:03 ago  1 checkpoint\n"
                      "memory    68.0 MiB a rank by the plan\n"))
      << shown;
}

TEST_F(WatchScreen, FitsEveryTerminal) {
  options_.utf8 = false;
  for (const int columns : {1, 10, 20, 40, 80, 300})
    for (const int rows : {1, 5, 12, 24, 60}) {
      options_.columns = columns;
      options_.rows = rows;
      const std::vector<std::string> shown = lines();
      EXPECT_LE(shown.size(), static_cast<size_t>(rows));
      for (const std::string& line : shown)
        EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
    }
  options_.columns = 40;
  options_.rows = 0;
  EXPECT_NE(text().find("of a step compute 75%  exchange 10%\n          data 1%  optimizer 5%\n"),
            std::string::npos)
      << text();
}

TEST_F(WatchScreen, States) {
  {
    const train::RunFolder writer(folder_.path());
    set_time("writer.lock", 0);
    EXPECT_NE(text().find("running: step 100 of 400, process "), std::string::npos) << text();
    EXPECT_NE(text().find("2:30 left  ends 00:03:22\n"), std::string::npos) << text();
    EXPECT_EQ(text().find("silent"), std::string::npos) << text();
    FlightMoment rank_0;
    rank_0.phase = FlightPhase::kSaving;
    options_.now = kBegin + 112;
    options_.colors = true;
    EXPECT_NE(text(&rank_0).find(", saving, silent for 1:02\x1b[0m\n"), std::string::npos)
        << text();
  }
  options_.colors = false;
  train::write_run_end(folder_.path(),
                       {train::RunEnd::Reason::kEarlyStopping, 100, 400, "0123456789abcdef"});
  EXPECT_NE(text().find("\ndone: step 100 of 400, stopped early, weights_hash"), std::string::npos)
      << text();
  EXPECT_NE(text().find("time      0:40 of steps  last step 00:00:50\n"), std::string::npos)
      << text();
}

TEST_F(WatchScreen, FailedStarts) {
  fs::create_directories(folder_.path() / "starts/0002");
  std::ofstream(folder_.path() / "starts/0002/start.json")
      << R"({"ranks": [{"rank": 1, "host": "node1", "process": 7, "code": 137}], "trouble": [],
             "steps_lost": 57, "seconds_lost": 1})";
  EXPECT_NE(text().find("restarts  2 failed starts  the newest lost 57 steps"), std::string::npos)
      << text();
  EXPECT_NE(text().find("rank 1 on node1: exit code 137"), std::string::npos) << text();
}

TEST(LineChart, FallsFromTheTopLeftToTheBottomRight) {
  std::vector<double> values(80);
  std::iota(values.rbegin(), values.rend(), 0.0);
  const LineChart plain = line_chart(values, {8, 4, /*utf8=*/false});
  EXPECT_EQ(joined_lines(plain.lines),
            "**      \n"
            "  **    \n"
            "    **  \n"
            "      **\n");
  EXPECT_EQ(plain.high, 74.5) << "the mean of ten values";
  EXPECT_EQ(plain.low, 4.5);
}

TEST(LineChart, BrailleDotsOfUnicode) {
  // A column of four dots has room for four values, of which the second is a gap.
  const LineChart chart = line_chart({1, std::nan(""), 0, 1}, {2, 1});
  ASSERT_EQ(chart.lines.size(), 1u);
  // Dot 1; none; dot 7; dots 4, 5 and 6, as the curve rises.
  EXPECT_EQ(chart.lines[0], "⠁⡸");
  EXPECT_EQ(line_chart({}, {2, 1}).lines[0], "  ");
  EXPECT_EQ(line_chart({5}, {2, 1}).lines[0], "⣀⣀");
}

}  // namespace
}  // namespace lockstep::watch
