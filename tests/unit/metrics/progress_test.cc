// Progress on a pseudo-terminal and elsewhere.

#include "runtime/metrics/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>

#include <cstdio>
#include <cstdlib>

#include "runtime/base/streams.h"
#include "runtime/base/time.h"
#include "tests/reference/text_checks.h"
#include "tests/unit/metrics/metrics_fixture.h"

namespace lockstep::metrics {
namespace {

// Until what was printed is written.
void settle() {
  constexpr double kPatienceMs = 20'000;  // only a fault takes so long
  EXPECT_TRUE(standard_error().flush(kPatienceMs, kPatienceMs));
}

// What was written to `fd` so far.
std::string drain(int fd) {
  settle();
  std::string text;
  pollfd wait{fd, POLLIN, 0};
  char buffer[4096];
  while (::poll(&wait, 1, 50) == 1 && (wait.revents & POLLIN) != 0) {
    const ssize_t got = ::read(fd, buffer, sizeof(buffer));
    if (got <= 0) break;
    text.append(buffer, static_cast<size_t>(got));
  }
  return text;
}

class Terminal : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    if (::openpty(&master_, &slave_, nullptr, nullptr, nullptr) != 0) {
      GTEST_SKIP() << "no pseudo-terminals here";
    }
    set_columns(100);
  }
  void TearDown() override {
    settle();
    ::close(master_);
    ::close(slave_);
  }
  void set_columns(unsigned short columns) {
    const winsize size{24, columns, 0, 0};
    ASSERT_EQ(::ioctl(slave_, TIOCSWINSZ, &size), 0);
  }
  ProgressOptions options() const { return {slave_, 0, 1000, 10}; }

  int master_ = -1, slave_ = -1;
};

TEST_F(Terminal, DrawsOneLineAndEndsIt) {
  {
    Progress progress(options());
    progress.update(sample_record(500));
    settle();                             // one that waits would be replaced
    progress.update(sample_record(501));  // within 100 ms: not drawn, until the end
  }
  const std::string text = drain(master_);
  EXPECT_CONTAINS(text, "500/1000");
  EXPECT_CONTAINS(text, "501/1000");
  EXPECT_CONTAINS(text, " 50%");
  EXPECT_CONTAINS(text, "samples/s");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_EQ(text.substr(text.size() - 2), "\r\n");
}

TEST_F(Terminal, DrawsAtMostTenTimesASecond) {
  const double start = now_ms();
  int64_t step = 0;
  {
    Progress progress(options());
    while (now_ms() - start < 450) {
      progress.update(sample_record(++step));
      ::usleep(1000);
    }
  }
  const double tenths = (now_ms() - start) / 100;
  const std::string text = drain(master_);
  const auto draws = std::count(text.begin(), text.end(), '\r');  // one a draw, one at the end
  EXPECT_LE(draws, tenths + 3);
  EXPECT_GE(draws, 4);
}

// Catches log lines that begin behind the progress.
TEST_F(Terminal, OtherOutputTakesTheLinesPlace) {
  Progress progress(options());
  progress.update(sample_record(1));
  drain(master_);
  standard_error().add(slave_, "a warning\n");
  EXPECT_EQ(drain(master_), "\r\x1b[Ka warning\r\n");
  standard_error().add(slave_, "another one\n");
  EXPECT_EQ(drain(master_), "another one\r\n");
}

TEST_F(Terminal, EvaluationsStay) {
  Progress progress(options());
  StepRecord record = sample_record(20);
  record.eval_loss = 0.5;
  record.eval_accuracy = 0.987;
  progress.update(record);
  EXPECT_CONTAINS(drain(master_), "step 20: eval loss 0.5000  eval accuracy 98.70%\r\n");
}

TEST_F(Terminal, FollowsTheWidth) {
  for (unsigned short columns : {20, 40, 60, 80, 200}) {
    set_columns(columns);
    Progress progress(options());
    progress.update(sample_record(500));
    const std::string text = drain(master_);
    EXPECT_LT(text.substr(text.rfind("\x1b[K") + 3).size(), columns);
  }
}

TEST_F(Terminal, NothingToFinishPrintsNothing) {
  { const Progress progress(options()); }
  EXPECT_EQ(drain(master_), "");
}

TEST_F(Terminal, DumbTerminalGetsLines) {
  ::setenv("TERM", "dumb", 1);
  Progress progress(options());
  progress.update(sample_record(10));
  EXPECT_LACKS(drain(master_), "\x1b");
}

class Pipe : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe(ends_), 0); }
  void TearDown() override {
    settle();
    ::close(ends_[0]);
    ::close(ends_[1]);
  }
  int ends_[2];
};

// `launch` redraws the line. What follows it is not erased here, where nothing stands.
TEST_F(Pipe, UnderALaunchThatHasATerminalTheLineIsPassedOn) {
  ::setenv(kProgressColumnsVariable, "60", 1);
  {
    Progress progress({ends_[1], 0, 1000, 10});
    StepRecord record = sample_record(20);
    record.eval_loss = 0.5;
    progress.update(record);
  }
  ::unsetenv(kProgressColumnsVariable);
  const std::string text = drain(ends_[0]), line = text.substr(text.find('\n') + 1);
  EXPECT_TRUE(text.starts_with("step 20: eval loss 0.5000\n")) << text;
  EXPECT_TRUE(line.ends_with("\r\n")) << line;
  EXPECT_CONTAINS(line, "20/1000");
  EXPECT_LT(line.size(), 62u);
  EXPECT_LACKS(text, "\x1b");
}

// Over all steps of a line, not just its own; and no word of a rank that costs little.
TEST_F(Pipe, LineNamesTheRankThatOthersWaitFor) {
  {
    Progress progress({ends_[1], 0, 30, 10});
    for (int64_t step = 1; step <= 30; ++step) {
      StepRecord record = sample_record(step);
      record.step_ms = 10;
      if (step <= 4) record.slowest = SlowestRank{1, "bob", 2.5};  // 10 of 100 ms
      if (step == 10) record.slowest = SlowestRank{0, "ada", 6};   // 6 of 100 ms
      if (step == 20) record.slowest = SlowestRank{0, "ada", 4};   // 4 of 100 ms
      progress.update(record);
    }
  }
  const std::string text = drain(ends_[0]);
  EXPECT_CONTAINS(text, "  waits for rank 1 on bob: 10%\nstep 20/30");
  EXPECT_LACKS(text, "ada");
}

TEST_F(Pipe, LineEveryFewStepsAndAtEvaluations) {
  {
    Progress progress({ends_[1], 0, 40, 10});
    for (int64_t step = 1; step <= 25; ++step) {
      StepRecord record = sample_record(step);
      record.tokens_per_s = 2'500'000;
      if (step == 15) record.eval_loss = 0.5;
      progress.update(record);
    }
  }
  const std::string text = drain(ends_[0]);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_CONTAINS(text, "step 10/40  loss 0.2500  lr 1.00e-03");
  EXPECT_CONTAINS(text, "step 15/40");
  EXPECT_CONTAINS(text, "eval loss 0.5000\n");
  EXPECT_CONTAINS(text, "2.50M tokens/s");
  EXPECT_CONTAINS(text, "step 20/40");
  EXPECT_LACKS(text, "\r");
}

// One evaluation after 1,000 quick steps counts once in 1,000 steps, though the line that shows it
// is of a single step.
TEST_F(Pipe, EvaluationsCountAsOftenAsTheyWere) {
  {
    Progress progress({ends_[1], 0, 10'001, 1000});
    StepRecord record = sample_record(1);
    record.step_ms = 0.1;
    for (record.step = 1; record.step <= 1000; ++record.step) progress.update(record);
    ::usleep(300'000);
    record.eval_loss = 0.5;
    progress.update(record);
  }
  const std::string text = drain(ends_[0]);
  const size_t line = text.find("step 1001/10001");
  ASSERT_NE(line, std::string::npos) << text;
  const size_t eta = text.find("ETA ", line);
  ASSERT_NE(eta, std::string::npos) << text;
  int minutes = 0, seconds = 0;
  ASSERT_EQ(std::sscanf(text.c_str() + eta, "ETA %d:%d", &minutes, &seconds), 2) << text;
  EXPECT_GE(60 * minutes + seconds, 3) << text;  // 9 times 0.3 s and 9,000 of 0.1 ms
  EXPECT_LE(60 * minutes + seconds, 60) << text;
}

// The first step, the checkpoint and the last step; by time at most two a second.
TEST_F(Pipe, LinesByTime) {
  constexpr int64_t kSteps = 200;
  const double start = now_ms();
  {
    Progress progress({ends_[1], 0, kSteps, 0});
    for (int64_t step = 1; step <= kSteps; ++step) {
      progress.update(sample_record(step), step == 77);
      ::usleep(7000);
    }
  }
  const double halves = (now_ms() - start) / 500;
  const std::string text = drain(ends_[0]);
  EXPECT_TRUE(text.starts_with("step 1/200  ")) << text;
  EXPECT_CONTAINS(text, "step 77/200");
  EXPECT_CONTAINS(text, "  checkpoint\nstep ");
  EXPECT_CONTAINS(text, "\nstep 200/200  ");
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GE(lines, 4) << text;
  EXPECT_LE(lines, halves + 4) << text;
}

TEST_F(Pipe, TheLastLineIsPrintedOnce) {
  {
    Progress progress({ends_[1], 0, 1, 0});
    progress.update(sample_record(1));
    progress.finish();
  }
  const std::string text = drain(ends_[0]);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

TEST_F(Pipe, WhatNobodyTakesWaitsElsewhere) {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  Progress progress({full, 0, 40, 1});
  progress.update(sample_record(1));
  progress.finish();
  ::dup2(ends_[1], full);  // there is room now
  EXPECT_CONTAINS(drain(ends_[0]), "step 1/40");
  ::close(full);
}

// The target is 100 ns; the limit allows for sanitizers and busy machines. Prints what it measured.
TEST_F(Terminal, UpdateThatPrintsNothingIsCheap) {
  for (const int fd : {slave_, ::open("/dev/null", O_WRONLY)}) {
    Progress progress({fd, 0, 1000, 1 << 30});
    const StepRecord record = sample_record(1);
    progress.update(record);
    double best_ns = 1e9;
    const uint64_t before = allocations();
    for (int repeat = 0; repeat < 50; ++repeat) {
      constexpr int kUpdates = 1000;
      const double start = now_ms();
      for (int i = 0; i < kUpdates; ++i) progress.update(record);
      best_ns = std::min(best_ns, (now_ms() - start) * 1e6 / kUpdates);
    }
    std::printf("update on %s: %.1f ns\n", fd == slave_ ? "a terminal" : "a file", best_ns);
    EXPECT_LT(best_ns, 2000);
    EXPECT_LT(allocations() - before, 1000u) << "only draws may allocate";
  }
}

TEST(ProgressText, FieldsByImportance) {
  const StepRecord record = sample_record(250);
  const std::string wide = format_progress(record, 1000, 3'723'000, 120);
  EXPECT_CONTAINS(wide, "[==========                              ]  25%");
  EXPECT_CONTAINS(wide, "250/1000  loss 0.0100  ETA 1:02:03  2592 samples/s  lr 1.00e-03");
  EXPECT_EQ(format_progress(record, 1000, -1, 16), " 25%  250/1000");
  for (int columns = 0; columns < 150; ++columns) {
    EXPECT_LE(static_cast<int>(format_progress(record, 1000, 1e12, columns).size()), columns);
  }
}

TEST(ProgressText, BeyondTheEnd) {
  EXPECT_CONTAINS(format_progress(sample_record(7), 5, 0, 80), "100%");
  EXPECT_CONTAINS(format_progress(sample_record(7), 0, 0, 80), "  0%");
}

TEST(ProgressText, Durations) {
  EXPECT_EQ(format_duration(0), "0:00");
  EXPECT_EQ(format_duration(59'600), "1:00");
  EXPECT_EQ(format_duration(245'000), "4:05");
  EXPECT_EQ(format_duration(36'000'000), "10:00:00");
  EXPECT_EQ(format_duration(-5), "0:00");
}

}  // namespace
}  // namespace lockstep::metrics
