// The Chrome trace, the phase timer and environment.json.

#include "runtime/metrics/timeline.h"

#include <nlohmann/json.hpp>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/time.h"
#include "runtime/metrics/environment.h"
#include "runtime/metrics/phase_timer.h"
#include "tests/unit/metrics/metrics_fixture.h"

namespace lockstep {
namespace {

using nlohmann::json;

TEST(TimelineTrace, SpansOfTwoRanks) {
  const TemporaryFolder folder;
  Timeline first(0, 16), second(1, 16);
  {
    const Timeline::Span outer(&first, "step", "train");
    const Timeline::Span inner(&first, "all \"reduce\"", "comm", 3);
    ::usleep(2000);
  }
  second.record("forward", "compute", 0, 10, 12.5);
  write_timeline(folder.path() / "timeline.json", {first.events_text(), second.events_text()});
  const json events = json::parse(text_of(folder.path() / "timeline.json"));
  ASSERT_EQ(events.size(), 5u);  // with a name for each process
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[1]["name"], "step");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_EQ(events[1]["pid"], 0);
  EXPECT_EQ(events[2]["name"], "all \"reduce\"");
  EXPECT_EQ(events[2]["tid"], 3);
  EXPECT_EQ(events[2]["cat"], "comm");
  EXPECT_GE(events[2]["dur"].get<double>(), 2000);
  EXPECT_LE(events[1]["ts"].get<double>(), events[2]["ts"].get<double>());
  EXPECT_EQ(events[4]["pid"], 1);
  EXPECT_EQ(events[4]["dur"], 2500);
}

// Viewers append the missing bracket: every cut at the end of a line must be valid then.
TEST(TimelineTrace, ValidWhenCutShort) {
  const TemporaryFolder folder;
  Timeline timeline(0, 16);
  for (int i = 0; i < 5; ++i) timeline.record("work", "compute", 0, i, i + 1);
  write_timeline(folder.path() / "timeline.json", {timeline.events_text()});
  const std::string text = text_of(folder.path() / "timeline.json");
  size_t cuts = 0;
  for (size_t end = text.find('\n', 2); end != std::string::npos; end = text.find('\n', end + 1)) {
    std::string part = text.substr(0, end);
    if (part.back() == ']') break;
    if (part.back() == ',') part.pop_back();
    EXPECT_EQ(json::parse(part + "]").size(), ++cuts);
  }
  EXPECT_EQ(cuts, 6u);
}

TEST(TimelineTrace, KeepsTheNewest) {
  Timeline timeline(0, 4);
  for (int i = 0; i < 10; ++i) timeline.record(std::to_string(i).c_str(), "c", 0, i, i + 1);
  EXPECT_EQ(timeline.dropped(), 6u);
  std::string text = timeline.events_text();
  text.replace(text.size() - 2, 2, "]");
  const json events = json::parse("[" + text);
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1]["name"], "6");
  EXPECT_EQ(events[4]["name"], "9");
}

TEST(TimelineTrace, RecordingDoesNotAllocate) {
  Timeline timeline(0, 64);
  const std::string long_name(100, 'n');
  const uint64_t before = allocations();
  for (int i = 0; i < 200; ++i) {
    const Timeline::Span span(&timeline, long_name.c_str(), "c");
    const Timeline::Span nothing(nullptr, "off", "c");
  }
  EXPECT_EQ(allocations() - before, 0u);
  EXPECT_THAT(timeline.events_text(), ::testing::HasSubstr("\"" + long_name.substr(0, 47) + "\""));
}

TEST(TimelineTrace, ThreadsMayRecordTogether) {
  Timeline timeline(0, 1000);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 200; ++i) const Timeline::Span span(&timeline, "work", "c", thread);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = timeline.events_text();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 801);
  EXPECT_EQ(timeline.dropped(), 0u);
}

TEST(TimelineTrace, NoEvents) {
  const TemporaryFolder folder;
  write_timeline(folder.path() / "timeline.json", {});
  EXPECT_TRUE(json::parse(text_of(folder.path() / "timeline.json")).empty());
}

TEST(PhaseTime, AddsUp) {
  double sum_ms = 100;
  const double start = now_ms();
  for (int i = 0; i < 2; ++i) {
    const PhaseTimer timer(sum_ms);
    ::usleep(3000);
  }
  EXPECT_GE(sum_ms, 106);
  EXPECT_LE(sum_ms, 100 + now_ms() - start);
}

TEST(Environment, SaysWhatRanWhere) {
  const TemporaryFolder folder;
  EnvironmentInfo info;
  info.ranks = 4;
  info.threads = 2;
  info.hosts = {"a", "a", "b", "b"};
  info.libraries = {{"MPI", "4.1"}, {"oneDNN", "2.7"}};
  info.git_revision = "abc123";
  info.command_line = {"lockstep", "train", "bad \xff bytes"};
  write_environment(folder.path() / "environment.json", info);
  const json environment = json::parse(text_of(folder.path() / "environment.json"));
  EXPECT_EQ(environment["ranks"], 4);
  EXPECT_EQ(environment["threads"], 2);
  EXPECT_EQ(environment["hosts"].size(), 4u);
  EXPECT_FALSE(environment.contains("devices"));
  EXPECT_EQ(environment["libraries"]["oneDNN"], "2.7");
  EXPECT_EQ(environment["git_revision"], "abc123");
  EXPECT_EQ(environment["command_line"][1], "train");
  EXPECT_EQ(environment["lockstep_version"], lockstep_version());
  EXPECT_GT(environment["memory_bytes"].get<int64_t>(), 1 << 20);
  EXPECT_GE(environment["cpu_cores"].get<int>(), 1);
  EXPECT_FALSE(environment["host"].get<std::string>().empty());
  EXPECT_FALSE(environment["compiler"].get<std::string>().empty());
  EXPECT_TRUE(environment.contains("cpu_model"));
  EXPECT_TRUE(environment.contains("operating_system"));
  EXPECT_THAT(environment["start_time"].get<std::string>(),
              ::testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"));
  EXPECT_THROW(write_environment(folder.path() / "absent" / "environment.json", info), IoError);
}

}  // namespace
}  // namespace lockstep
