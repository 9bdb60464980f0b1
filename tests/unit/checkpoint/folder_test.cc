// Which checkpoints a run has, which is best, and which are removed.

#include "tests/reference/text_checks.h"
#include "tests/unit/checkpoint/checkpoint_fixture.h"

namespace lockstep::checkpoint {
namespace {

class Folder : public ::testing::Test {
 protected:
  void save(std::initializer_list<int64_t> steps) {
    for (int64_t step : steps) run_.save(root_, step, 1);
  }
  void spoil(int64_t step) { fs::resize_file(root_ / checkpoint_name(step) / kModelFile, 10); }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> result;
    for (const CheckpointEntry& entry : list_checkpoints(root_)) result.push_back(entry.step);
    return result;
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_.path() / "checkpoints";
  SampleRun run_ = sample_run();
};

TEST_F(Folder, EmptyOrAbsent) {
  EXPECT_TRUE(list_checkpoints(root_).empty());
  EXPECT_FALSE(find_latest(root_).has_value());
  EXPECT_FALSE(read_best(root_).has_value());
  EXPECT_CONTAINS(error_of([&] { resolve_checkpoint(folder_.path()); }), "no checkpoint here");
}

TEST_F(Folder, ListsBySteps) {
  save({100, 20, 123456789});
  for (const char* other : {"step-00000007.tmp",
                            "step-00000008.tmp-delete",
                            "step-9",
                            "step-0000001x",
                            "step-",
                            "notes",
                            "step-00000007.replaced.tmp"}) {
    fs::create_directories(root_ / other);
  }
  EXPECT_EQ(steps(), (std::vector<int64_t>{20, 100, 123456789}));
  EXPECT_EQ(checkpoint_name(20), "step-00000020");
}

TEST_F(Folder, LatestPassesOverWhatIsNotWhole) {
  save({1, 2, 3, 4});
  spoil(4);
  fs::remove(root_ / checkpoint_name(3) / kStateFile);
  std::vector<std::string> skipped;
  EXPECT_EQ(find_latest(root_, &skipped)->step, 2);
  ASSERT_EQ(skipped.size(), 2u);
  EXPECT_CONTAINS(skipped[0], "step-00000004/model.safetensors");
  EXPECT_CONTAINS(skipped[1], "step-00000003/state.textproto");
}

TEST_F(Folder, ResolvesWhatAUserMeans) {
  save({1, 2});
  EXPECT_EQ(resolve_checkpoint(root_ / checkpoint_name(1)), root_ / checkpoint_name(1));
  EXPECT_EQ(resolve_checkpoint(root_), root_ / checkpoint_name(2));
  EXPECT_EQ(resolve_checkpoint(folder_.path()), root_ / checkpoint_name(2));
}

TEST_F(Folder, Best) {
  save({1, 2});
  write_best(root_, 1);
  ASSERT_TRUE(read_best(root_).has_value());
  EXPECT_EQ(read_best(root_)->path, root_ / checkpoint_name(1));
  write_best(root_, 2);
  EXPECT_EQ(read_best(root_)->step, 2);
  fs::remove_all(root_ / checkpoint_name(2));
  EXPECT_FALSE(read_best(root_).has_value());
  set_bytes(root_ / "best", "../../etc\n");
  EXPECT_CONTAINS(error_of([&] { read_best(root_); }), "../../etc");
}

TEST_F(Folder, PruneKeepsTheNewestAndTheBest) {
  save({1, 2, 3, 4, 5});
  prune(root_, 2, 1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 4, 5}));
  prune(root_, 1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{5}));
  EXPECT_EQ(std::distance(fs::directory_iterator(root_), {}), 1) << "nothing half deleted";
}

// Catches: a damaged newest checkpoint counted as one that is kept, so that the last good one is
// lost.
TEST_F(Folder, PruneDoesNotCountDamagedOnes) {
  save({1, 2, 3, 4});
  spoil(4);
  prune(root_, 1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(find_latest(root_)->step, 3);
}

TEST_F(Folder, PruneAsksBeforeEachRemoval) {
  save({1, 2, 3, 4});
  int asked = 0;
  const auto twice = [&] {
    if (++asked == 3) throw CheckpointError("given up");
  };
  EXPECT_CONTAINS(
      error_of([&] { prune(root_, 1, std::nullopt, std::numeric_limits<int64_t>::max(), twice); }),
      "given up");
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 4}));
}

TEST_F(Folder, PruneLeavesLaterStepsAlone) {
  save({1, 2, 3, 7, 8});
  prune(root_, 1, std::nullopt, 3);
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 7, 8}));
}

TEST_F(Folder, BestStandsForTheBestCheckpoint) {
  save({1, 2, 3});
  EXPECT_CONTAINS(error_of([&] { resolve_checkpoint(root_ / "best"); }), "best");
  write_best(root_, 2);
  EXPECT_EQ(resolve_checkpoint(root_ / "best"), root_ / "step-00000002");
}

TEST_F(Folder, PruneAfterAnInterruptedPrune) {
  save({1, 2, 3});
  fs::create_directories(root_ / "step-00000001.tmp-delete" / "half");
  prune(root_, 1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{3}));
  EXPECT_FALSE(fs::exists(root_ / "step-00000001.tmp-delete"));
}

// Catches: a clean-up that takes more than what Lockstep itself left behind.
TEST_F(Folder, ForeignFilesStay) {
  save({1});
  for (const char* name : {"step-00000001.tar", "step-00000009.tmp.bak", "notes.tmp", "best"}) {
    set_bytes(root_ / name, "mine");
  }
  save({2, 3});
  prune(root_, 1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{3}));
  for (const char* name : {"step-00000001.tar", "step-00000009.tmp.bak", "notes.tmp", "best"}) {
    EXPECT_TRUE(fs::exists(root_ / name)) << name;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
