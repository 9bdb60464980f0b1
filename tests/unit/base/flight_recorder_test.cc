// What a process did last, as another one reads it. Catches entries that are lost, mixed up or told
// wrongly, a file of something else that is taken for a recorder's, and two who tell the user.

#include "runtime/base/flight_recorder.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "runtime/base/flight_reader.h"

namespace lockstep {
namespace {

class Flight : public ::testing::Test {
 protected:
  Flight() {
    std::string name = std::filesystem::temp_directory_path() / "lockstep-flight-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    FlightRecorder::here().open(folder_, 3, 8);
  }
  ~Flight() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(Flight, TheNewestIsThereAndTheOldestGoes) {
  FlightRecorder& recorder = FlightRecorder::here();
  const auto reader = FlightReader::open(flight_path(folder_, 3));
  ASSERT_NE(reader, nullptr);
  EXPECT_FALSE(reader->now().last.has_value());
  recorder.begin_phase(FlightPhase::kTraining);
  recorder.begin_step(41);
  recorder.set_bucket(7);
  uint64_t number = 0;
  for (size_t bytes = 1; bytes <= 2000; ++bytes)
    number = recorder.begin(FlightOp::kExchange, bytes);
  recorder.wait(number, FlightOp::kExchange, 2000);
  const FlightMoment moment = reader->now();
  EXPECT_EQ(moment.rank, 3);
  EXPECT_EQ(moment.ranks, 8);
  EXPECT_EQ(moment.process, ::getpid());
  EXPECT_EQ(moment.step, 41);
  EXPECT_TRUE(moment.waiting);
  EXPECT_EQ(
      text_of(moment),
      "step 41, training, in exchange " + std::to_string(number) + " of bucket 7 (2000 bytes)");
  const std::vector<FlightEntry> entries = reader->entries();
  ASSERT_EQ(entries.size(), FlightHeader::kEntries);
  EXPECT_EQ(entries.back().state, FlightState::kWaiting);
  for (size_t i = 1; i + 1 < entries.size(); ++i)
    EXPECT_EQ(entries[i].collective, entries[i - 1].collective + 1);
  recorder.end(number, FlightOp::kExchange, 2000);
  EXPECT_FALSE(reader->now().waiting);
  recorder.set_bucket(-1);
}

TEST_F(Flight, SignsOfWorkAndLifeAreCounted) {
  FlightRecorder& recorder = FlightRecorder::here();
  const auto reader = FlightReader::open(flight_path(folder_, 3));
  const FlightMoment before = reader->now();
  recorder.beat();
  recorder.keep_alive();
  EXPECT_EQ(reader->now().beats, before.beats + 1);
  EXPECT_EQ(reader->now().alive, before.alive + 1);
}

TEST_F(Flight, TheFirstStepIsKeptAndACopyStays) {
  FlightRecorder& recorder = FlightRecorder::here();
  const auto reader = FlightReader::open(flight_path(folder_, 3));
  EXPECT_EQ(reader->now().first_step, -1);
  recorder.begin_step(500);
  const std::filesystem::path file = folder_ / "file";
  std::filesystem::copy_file(flight_path(folder_, 3), file);
  const auto copy = FlightReader::copy(file);
  recorder.begin_step(501);
  EXPECT_EQ(reader->now().first_step, 500);
  EXPECT_EQ(reader->now().step, 501);
  EXPECT_EQ(copy->now().step, 500);
  std::filesystem::resize_file(file, 0);
  EXPECT_EQ(copy->now().first_step, 500);
  EXPECT_EQ(FlightReader::copy(file), nullptr);
}

TEST_F(Flight, APhaseEndsWithItsBlockButNotWithAnError) {
  FlightRecorder& recorder = FlightRecorder::here();
  recorder.begin_phase(FlightPhase::kTraining);
  { const FlightScope saving(FlightPhase::kSaving); }
  EXPECT_EQ(recorder.phase(), FlightPhase::kTraining);
  try {
    const FlightScope saving(FlightPhase::kSaving);
    throw 1;
  } catch (int) {
  }
  EXPECT_EQ(recorder.phase(), FlightPhase::kSaving);
}

// By which ranks that did different things are found.
TEST_F(Flight, HistoriesDifferFromTheFirstDifferenceOn) {
  const auto histories_of = [&](size_t third) {
    FlightRecorder& recorder = FlightRecorder::here();
    recorder.open(folder_, 3, 8);
    for (const size_t bytes : {size_t{8}, size_t{16}, third, size_t{32}})
      recorder.begin(FlightOp::kExchange, bytes);
    const auto reader = FlightReader::open(flight_path(folder_, 3));
    std::vector<uint64_t> histories;
    for (uint64_t number = 1; number <= 4; ++number) {
      const auto start = reader->start(number);
      EXPECT_TRUE(start.has_value());
      EXPECT_EQ(start->number, number);
      histories.push_back(start->history);
    }
    EXPECT_FALSE(reader->start(0).has_value());
    EXPECT_FALSE(reader->start(5).has_value());
    return histories;
  };
  const auto one = histories_of(24), same = histories_of(24), other = histories_of(25);
  EXPECT_EQ(one, same);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(one[i] == other[i], i < 2) << i;
}

TEST_F(Flight, StartsOfLongAgoAreGone) {
  FlightRecorder& recorder = FlightRecorder::here();
  for (int i = 0; i < 3000; ++i) recorder.begin(FlightOp::kAllGather, 8);
  const auto reader = FlightReader::open(flight_path(folder_, 3));
  EXPECT_FALSE(reader->start(1).has_value());
  EXPECT_FALSE(reader->start(3000 - FlightHeader::kEntries).has_value());
  EXPECT_TRUE(reader->start(2500).has_value());
  EXPECT_EQ(reader->now().begun.number, 3000U);
}

TEST_F(Flight, AFindingIsTold) {
  const auto reader = FlightReader::open(flight_path(folder_, 3));
  EXPECT_FALSE(reader->finding().has_value());
  FlightRecorder::here().report({5, std::string(5000, 'x')});  // longer than there is room
  ASSERT_TRUE(reader->finding().has_value());
  EXPECT_EQ(reader->finding()->rank, 5);
  EXPECT_EQ(reader->finding()->text.substr(0, 2000), std::string(2000, 'x'));
}

TEST_F(Flight, OtherFilesAreNotRead) {
  EXPECT_EQ(FlightReader::open(folder_ / "none"), nullptr);
  EXPECT_EQ(FlightReader::open(folder_), nullptr);
  const std::filesystem::path copy = folder_ / "copy";
  std::filesystem::copy_file(flight_path(folder_, 3), copy);
  EXPECT_NE(FlightReader::open(copy), nullptr);
  std::fstream(copy).put('?');  // another kind
  EXPECT_EQ(FlightReader::open(copy), nullptr);
  std::filesystem::resize_file(copy, 100);
  EXPECT_EQ(FlightReader::open(copy), nullptr);
}

TEST_F(Flight, OneTells) {
  EXPECT_TRUE(FlightRecorder::here().claim_report());
  EXPECT_FALSE(FlightRecorder::here().claim_report());
  EXPECT_EQ(last_seen(5), "");
  EXPECT_EQ(last_seen(3).substr(0, 20), "; it was at step 0, ");
}

}  // namespace
}  // namespace lockstep
