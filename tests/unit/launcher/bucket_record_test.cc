// Catches: a record of tuned buckets that reads back as another one, and a damaged one that counts.
#include "launcher/bench/bucket_record.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/error.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::launcher {
namespace {

class BucketRecordTest : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(BucketRecordTest, ReadsWhatItWrote) {
  EXPECT_FALSE(read_bucket_record(folder_).has_value());
  const BucketRecord record = {0.1, 4, {{0.1, 30, 1.0 / 3}, {12, 1, 2}}};
  write_bucket_record(folder_, record);
  const auto read = read_bucket_record(folder_);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->bucket_mib, 0.1);
  EXPECT_EQ(read->ranks, 4);
  ASSERT_EQ(read->trials.size(), 2u);
  EXPECT_EQ(read->trials[0].bucket_mib, 0.1);
  EXPECT_EQ(read->trials[0].step_ms, 1.0 / 3);
  EXPECT_EQ(read->trials[1].buckets, 1u);
  EXPECT_EQ(to_text(read->trials), "0.1 MiB 0.3333 (30 buckets), 12 MiB 2 (1 bucket)");
}

TEST_F(BucketRecordTest, RefusesWhatIsNone) {
  for (const char* text : {"",
                           "{",
                           "[]",
                           "{}",
                           R"({"bucket_mib": 25})",
                           R"({"bucket_mib": "25", "ranks": 2, "trials": []})",
                           R"({"bucket_mib": 0, "ranks": 2, "trials": []})",
                           R"({"bucket_mib": 1025, "ranks": 2, "trials": []})",
                           R"({"bucket_mib": 25, "ranks": 2, "trials": [1]})"}) {
    std::ofstream(bucket_record_path(folder_)) << text;
    EXPECT_THROW(read_bucket_record(folder_), CheckpointError) << text;
  }
}

TEST(BucketCandidates, HaveTheConfigsOwnOnce) {
  EXPECT_EQ(bucket_candidates(25), (std::vector<double>{1, 4, 12, 25, 50, 100}));
  EXPECT_EQ(bucket_candidates(0.5), (std::vector<double>{0.5, 1, 4, 12, 25, 50, 100}));
  EXPECT_EQ(bucket_candidates(200), (std::vector<double>{1, 4, 12, 25, 50, 100, 200}));
}

}  // namespace
}  // namespace lockstep::launcher
