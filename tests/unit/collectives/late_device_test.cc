// Catches: a hang on a GPU that is blamed on a rank that waits, or on nobody; the wrong operation.
#include "collectives/watch/late_device.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::collectives {
namespace {

constexpr uint64_t kBegun5 = 11, kEnded4 = 10;

FlightMoment rank_at(int rank, uint64_t count, int bucket, double waited_s) {
  FlightMoment moment{.rank = rank, .process = 100 + rank, .host = "node1"};
  moment.step = 120;
  moment.phase = FlightPhase::kTraining;
  moment.device = {count, bucket, FlightOp::kExchange};
  moment.device_wait_s = waited_s;
  moment.device_late = waited_s >= 60;
  return moment;
}

TEST(LateDevice, WordsKeepWhatTheyAreMadeOf) {
  for (const int bucket : {-1, 0, 5, 70'000}) {
    const DevicePoint point = {41, bucket, FlightOp::kBroadcast};
    const DevicePoint read = DevicePoint::of(point.word());
    EXPECT_EQ(read.count, point.count);
    EXPECT_EQ(read.bucket, point.bucket);
    EXPECT_EQ(read.op, point.op);
    EXPECT_EQ(point.word(),
              point.count << DevicePoint::kLabelBits | DevicePoint::label(point.op, point.bucket));
  }
}

TEST(LateDevice, NobodyIsLateBeforeTheLimit) {
  EXPECT_EQ(late_device(std::vector{rank_at(0, kBegun5, 5, 59), rank_at(1, kEnded4, 4, 59)}), "");
}

TEST(LateDevice, TheRankThatHasNotReachedABucketIsNamed) {
  FlightRecorder::here().name_buckets({"a", "b", "c", "d", "e", "layers.3.weight to f"});
  std::vector<FlightMoment> ranks;
  for (int rank = 0; rank < 3; ++rank) ranks.push_back(rank_at(rank, kBegun5, 5, 61));
  ranks.push_back(rank_at(3, kEnded4, 4, 60));
  EXPECT_EQ(late_device(ranks),
            "rank 3 on node1 (process 103) has not reached the exchange of bucket 5 "
            "(layers.3.weight to f), step 120, for which ranks 0, 1 and 2 have waited 61 s: its "
            "GPU hangs in a computation after the exchange of bucket 4 (e)");
  // A host that has nothing on its GPU has not queued the work.
  ranks[3] = rank_at(3, kEnded4, 4, 0);
  const std::string text = late_device(ranks);
  EXPECT_NE(text.find("rank 3 on node1"), std::string::npos) << text;
  EXPECT_NE(text.find("its process has not queued it: step 120"), std::string::npos) << text;
  FlightRecorder::here().name_buckets({});
}

TEST(LateDevice, AnOperationThatNobodyEndsIsNcclsOrTheNetworks) {
  const std::string text =
      late_device(std::vector{rank_at(0, kBegun5, 5, 61), rank_at(1, kBegun5, 5, 61)});
  EXPECT_EQ(text.find("the GPUs of all ranks have been in the exchange of bucket 5, step 120"), 0u)
      << text;
  EXPECT_NE(text.find("ncclras"), std::string::npos) << text;
}

TEST(LateDevice, AnOperationThatOthersHaveEnded) {
  const std::string text =
      late_device(std::vector{rank_at(0, kBegun5 + 1, 5, 61), rank_at(1, kBegun5, 5, 61)});
  EXPECT_EQ(text.find("rank 1 on node1 (process 101) has not finished the exchange of bucket 5"),
            0u)
      << text;
}

TEST(LateDevice, AComputationThatNobodyWaitsForYet) {
  const std::string text =
      late_device(std::vector{rank_at(0, kEnded4, 4, 0), rank_at(1, kEnded4, 4, 61)});
  EXPECT_EQ(text.find("rank 1 on node1 (process 101) has not finished the work of the GPU"), 0u)
      << text;
}

}  // namespace
}  // namespace lockstep::collectives
