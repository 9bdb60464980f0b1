// The Chrome trace, the phase timer and environment.json.

#include "runtime/metrics/timeline.h"

#include <algorithm>
#include <map>
#include <thread>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/time.h"
#include "runtime/metrics/environment.h"
#include "runtime/metrics/phase_timer.h"
#include "tests/reference/text_checks.h"
#include "tests/unit/metrics/metrics_fixture.h"

namespace lockstep::metrics {
namespace {

Json events_of(std::string text) {
  text.replace(text.size() - 2, 2, "]");  // the last comma
  return Json::parse("[" + text);
}

TEST(TimelineTrace, SpansOfTwoRanks) {
  const TemporaryFolder folder;
  Timeline first(16), second(16);
  {
    const Timeline::Span outer(&first, "step", "train");
    const Timeline::Span inner(&first, "all \"reduce\"", "comm");
    ::usleep(2000);
  }
  second.record("forward", "compute", Track::kSteps, 10, 12.5);
  write_timeline(folder.path() / "timeline.json",
                 {first.events_text(0, "ada", 0), second.events_text(1, "b\"ob", 1000)});
  const Json events = Json::parse(text_of(folder.path() / "timeline.json"));
  ASSERT_EQ(events.size(), 7u);  // with a name for each process and each row
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[0]["args"]["name"], "rank 0 on ada");
  EXPECT_EQ(events[1]["name"], "thread_name");
  EXPECT_EQ(events[1]["args"]["name"], "steps");
  EXPECT_EQ(events[2]["name"], "step");
  EXPECT_EQ(events[2]["ph"], "X");
  EXPECT_EQ(events[2]["pid"], 0);
  EXPECT_EQ(events[3]["name"], "all \"reduce\"");
  EXPECT_EQ(events[3]["tid"], events[2]["tid"]);
  EXPECT_EQ(events[3]["cat"], "comm");
  EXPECT_GE(events[3]["dur"].get<double>(), 2000);
  EXPECT_LE(events[2]["ts"].get<double>(), events[3]["ts"].get<double>());
  EXPECT_EQ(events[4]["args"]["name"], "rank 1 on b\"ob");
  EXPECT_EQ(events[6]["pid"], 1);
  EXPECT_EQ(events[6]["ts"], 1010000);
  EXPECT_EQ(events[6]["dur"], 2500);
}

// Viewers take spans of one row for nested: those that merely overlap need rows of their own, and
// a row that is free again is used again.
TEST(TimelineTrace, OverlappingSpansGetRowsOfTheirOwn) {
  Timeline timeline(16);
  timeline.record("second", "exchange", Track::kExchanges, 2, 6);  // in any order
  timeline.record("first", "exchange", Track::kExchanges, 1, 4);
  timeline.record("third", "exchange", Track::kExchanges, 4, 5);
  timeline.record("fourth", "exchange", Track::kExchanges, 5.5, 7);
  timeline.record("other", "gather", Track::kGathers, 1, 7);
  timeline.record("step", "step", Track::kSteps, 0, 10);
  timeline.record("wait", "wait", Track::kSteps, 3, 4);
  std::map<std::string, int> row;
  std::map<int, std::string> title;
  for (const Json& event : events_of(timeline.events_text(0, "ada", 0))) {
    if (event["name"] == "thread_name")
      title[event["tid"].get<int>()] = event["args"]["name"].get<std::string>();
    row[event["name"].get<std::string>()] = event["tid"].get<int>();
  }
  EXPECT_EQ(row["third"], row["first"]);
  EXPECT_EQ(row["fourth"], row["first"]);
  EXPECT_NE(row["second"], row["first"]);
  EXPECT_EQ(row["wait"], row["step"]);
  EXPECT_EQ(title[row["first"]], "exchanges of gradients");
  EXPECT_EQ(title[row["second"]], "exchanges of gradients 2");
  EXPECT_EQ(title[row["other"]], "gathers of parameters");
  EXPECT_EQ(title[row["step"]], "steps");
  EXPECT_EQ(title.size(), 4u);
}

// Viewers append the missing bracket: every cut at the end of a line must be valid then.
TEST(TimelineTrace, ValidWhenCutShort) {
  const TemporaryFolder folder;
  Timeline timeline(16);
  for (int i = 0; i < 5; ++i) timeline.record("work", "compute", Track::kSteps, i, i + 1);
  write_timeline(folder.path() / "timeline.json", {timeline.events_text(0, "ada", 0)});
  const std::string text = text_of(folder.path() / "timeline.json");
  size_t cuts = 0;
  for (size_t end = text.find('\n', 2); end != std::string::npos; end = text.find('\n', end + 1)) {
    std::string part = text.substr(0, end);
    if (part.back() == ']') break;
    if (part.back() == ',') part.pop_back();
    EXPECT_EQ(Json::parse(part + "]").size(), ++cuts);
  }
  EXPECT_EQ(cuts, 7u);
}

TEST(TimelineTrace, KeepsTheNewest) {
  Timeline timeline(4);
  for (int i = 0; i < 10; ++i)
    timeline.record(std::to_string(i).c_str(), "c", Track::kSteps, i, i + 1);
  EXPECT_EQ(timeline.dropped(), 6u);
  const Json events = events_of(timeline.events_text(0, "ada", 0));
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[2]["name"], "6");
  EXPECT_EQ(events[5]["name"], "9");
}

// Many ops must not push the steps out, nor steps the ops.
TEST(TimelineTrace, OpsLieAmongTheStepsAndAreKeptApart) {
  Timeline timeline(2);
  timeline.record("step", "step", Track::kSteps, 0, 10);
  for (int i = 0; i < 5; ++i)
    timeline.record(std::to_string(i).c_str(), "op", Track::kOps, i, i + 1);
  EXPECT_EQ(timeline.dropped(), 0u);
  EXPECT_EQ(timeline.dropped_ops(), 3u);
  const Json events = events_of(timeline.events_text(0, "ada", 0));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1]["args"]["name"], "steps");
  for (size_t i = 2; i < 5; ++i) EXPECT_EQ(events[i]["tid"], events[1]["tid"]);
  EXPECT_EQ(events[2]["name"], "step");
  EXPECT_EQ(events[3]["name"], "3");
  EXPECT_EQ(events[4]["name"], "4");
}

// Catches: a meeting that is taken for one before or after it where a rank has forgotten some, or
// for one of other ranks; and a rank that is named though one that was not asked may be later.
TEST(TimelineTrace, NamesWhoCameLast) {
  Timeline whole(16), newest(3), others(16);
  const auto meet =
      [](Timeline& timeline, const char* name, double start_ms, CollectiveGroup group) {
        timeline.record(name, "exchange", Track::kExchanges, start_ms, 100, group);
      };
  const CollectiveGroup pair = {0, 2};
  for (double start : {1.0, 11.0, 21.0}) meet(whole, "a", start, pair);
  meet(whole, "b", 30, pair);
  meet(whole, "unknown", 31, {0, 3});
  meet(newest, "a", 0.5, pair);  // overwritten
  meet(newest, "a", 1013, pair);
  meet(newest, "a", 1020.5, pair);
  meet(newest, "b", 1030.25, pair);
  meet(others, "b", 500, {2, 2});
  const std::vector<CollectiveArrival> mine = whole.arrivals(0);
  CollectiveArrivals arrivals(mine);
  arrivals.add(0, mine);
  arrivals.add(1, newest.arrivals(-1000));
  arrivals.add(2, others.arrivals(0));
  std::map<double, Json> by_start;
  for (const Json& event : events_of(whole.events_text(0, "ada", 0, arrivals))) {
    if (event["ph"] == "X") by_start[event["ts"].get<double>() / 1e3] = event;
  }
  ASSERT_EQ(by_start.size(), 5u);
  EXPECT_FALSE(by_start[1].contains("args"));
  EXPECT_EQ(by_start[11]["args"],
            Json::object({{"arrived_ms", 0.0}, {"last", 1}, {"behind_ms", 2.0}}));
  EXPECT_EQ(by_start[21]["args"],
            Json::object({{"arrived_ms", 0.5}, {"last", 0}, {"behind_ms", 0.5}}));
  EXPECT_EQ(by_start[30]["args"],
            Json::object({{"arrived_ms", 0.0}, {"last", 1}, {"behind_ms", 0.25}}));
  EXPECT_FALSE(by_start[31].contains("args"));
}

TEST(TimelineTrace, RecordingDoesNotAllocate) {
  Timeline timeline(64);
  const std::string long_name(100, 'n');
  const uint64_t before = allocations();
  for (int i = 0; i < 200; ++i) {
    const Timeline::Span span(&timeline, long_name.c_str(), "c");
    const Timeline::Span nothing(nullptr, "off", "c");
    timeline.record(long_name.c_str(), "op", Track::kOps, i, i + 1, {0, 2});
  }
  EXPECT_EQ(allocations() - before, 0u);
  EXPECT_CONTAINS(timeline.events_text(0, "ada", 0), "\"" + long_name.substr(0, 63) + "\"");
}

TEST(TimelineTrace, ThreadsMayRecordTogether) {
  Timeline timeline(1000);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) const Timeline::Span span(&timeline, "work", "c");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = timeline.events_text(0, "ada", 0);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 802);
  EXPECT_EQ(timeline.dropped(), 0u);
}

TEST(TimelineTrace, NoEvents) {
  const TemporaryFolder folder;
  write_timeline(folder.path() / "timeline.json", {});
  EXPECT_TRUE(Json::parse(text_of(folder.path() / "timeline.json")).empty());
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
  EnvironmentInfo info;
  info.ranks = 4;
  info.threads = 2;
  info.hosts = {"a", "a", "b", "b"};
  info.simd = {"AVX512", "AVX512", "AVX2", "AVX2"};
  info.libraries = {{"MPI", "4.1"}, {"oneDNN", "2.7"}};
  info.git_revision = "abc123";
  info.memory = {{"parameters", 100}, {"gradients", 28}};
  info.command_line = {"lockstep", "train", "bad \xff bytes"};
  const Json environment = Json::parse(environment_text(info));
  EXPECT_EQ(environment["ranks"], 4);
  EXPECT_EQ(environment["threads"], 2);
  EXPECT_EQ(environment["hosts"].size(), 4u);
  EXPECT_FALSE(environment.contains("devices"));
  EXPECT_EQ(environment["simd"][3], "AVX2");
  EXPECT_EQ(environment["libraries"]["oneDNN"], "2.7");
  EXPECT_EQ(environment["git_revision"], "abc123");
  EXPECT_EQ(environment["planned_memory"]["gradients"], 28);
  EXPECT_EQ(environment["planned_bytes"], 128);
  EXPECT_EQ(environment["command_line"][1], "train");
  EXPECT_EQ(environment["lockstep_version"], lockstep_version());
  EXPECT_GT(environment["memory_bytes"].get<int64_t>(), 1 << 20);
  EXPECT_GE(environment["cpu_cores"].get<int>(), 1);
  EXPECT_FALSE(environment["host"].get<std::string>().empty());
  EXPECT_FALSE(environment["compiler"].get<std::string>().empty());
  EXPECT_TRUE(environment.contains("cpu_model"));
  EXPECT_TRUE(environment.contains("operating_system"));
  std::string start = environment["start_time"].get<std::string>();
  std::replace_if(
      start.begin(), start.end(), [](char c) { return c >= '0' && c <= '9'; }, '9');
  EXPECT_EQ(start, "9999-99-99T99:99:99Z");
}

}  // namespace
}  // namespace lockstep::metrics
