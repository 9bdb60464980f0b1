// Whatever moment a writer dies or fails at, the folder has the old checkpoint or the new one,
// whole.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "runtime/checkpoint/format/publish.h"
#include "tests/reference/text_checks.h"
#include "tests/unit/checkpoint/checkpoint_fixture.h"

namespace lockstep::checkpoint {
namespace {

class WriteProtocol : public ::testing::Test {
 protected:
  void expect_only_step(int64_t step) {
    const std::vector<CheckpointEntry> entries = list_checkpoints(root_);
    ASSERT_EQ(entries.size(), 1u);
    EXPECT_EQ(entries[0].step, step);
    const auto latest = find_latest(root_);
    ASSERT_TRUE(latest.has_value());
    EXPECT_EQ(latest->step, step);
    EXPECT_EQ(verify(latest->path), std::vector<std::string>());
  }
  size_t entries_in_root() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(root_), {}));
  }

  TemporaryFolder folder_;
  fs::path root_ = folder_.path() / "run" / "checkpoints";
  SampleRun run_ = sample_run();
};

// Stops after each step of the protocol, then starts the next checkpoint as a restarted run would.
TEST_F(WriteProtocol, StoppedAfterEachStep) {
  run_.save(root_, 1, 2);
  for (int stop = 0; stop < 4; ++stop) {
    const CheckpointWriter writer = CheckpointWriter::begin(root_, 2);
    if (stop > 0) writer.write_model(run_.layout, run_.weights.data());
    if (stop > 1) run_.write_shard(writer, 0, 2);
    if (stop > 2) run_.write_shard(writer, 1, 2);
    EXPECT_EQ(entries_in_root(), 2u) << "the temporary folder is there";
    expect_only_step(1);
  }
  // Death between the state file and the rename: everything is there but the name.
  run_.save(root_, 2, 2);
  fs::rename(root_ / "step-00000002", root_ / "step-00000002.tmp");
  expect_only_step(1);
  run_.save(root_, 3, 2);
  EXPECT_EQ(entries_in_root(), 2u) << "leftovers are removed";
  EXPECT_EQ(find_latest(root_)->step, 3);
}

// A child is killed at many moments while it saves one checkpoint after the other.
TEST_F(WriteProtocol, KilledAtAnyTime) {
  run_.save(root_, 1, 1);
  for (int attempt = 0; attempt < 40; ++attempt) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      try {
        for (int64_t step = 2;; step = step % 4 + 1) {  // also replaces existing steps
          const CheckpointWriter writer = CheckpointWriter::begin(root_, step);
          std::vector<FileRecord> records{writer.write_model(run_.layout, run_.weights.data()),
                                          run_.write_shard(writer, 0, 1)};
          writer.commit(run_.state(step, 1, std::move(records)));
          prune(root_, 2);
        }
      } catch (...) {
      }
      ::_exit(1);
    }
    ::usleep(static_cast<useconds_t>(philox_word({1, 0, 0, 0}, static_cast<uint64_t>(attempt)) %
                                     150000));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";
    std::vector<std::string> skipped;
    const auto latest = find_latest(root_, &skipped);
    ASSERT_TRUE(latest.has_value());
    EXPECT_EQ(skipped, std::vector<std::string>());
    for (const CheckpointEntry& entry : list_checkpoints(root_)) {
      EXPECT_EQ(verify(entry.path), std::vector<std::string>());
    }
  }
}

// A file-size limit is a disk that is full at that byte, whichever file it hits.
TEST_F(WriteProtocol, DiskFullAtAnyByte) {
  run_.save(root_, 1, 2);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  uint64_t largest = 0;
  for (const auto& entry : fs::directory_iterator(root_ / "step-00000001")) {
    largest = std::max<uint64_t>(largest, entry.file_size());
  }
  for (uint64_t limit = 0; limit < largest; limit += 61) {
    rlimit low = old;
    low.rlim_cur = limit;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
    const std::string error = error_of([&] {
      const CheckpointWriter writer = CheckpointWriter::begin(root_, 2);
      try {
        std::vector<FileRecord> records{writer.write_model(run_.layout, run_.weights.data()),
                                        run_.write_shard(writer, 0, 2),
                                        run_.write_shard(writer, 1, 2)};
        writer.commit(run_.state(2, 2, std::move(records)));
      } catch (...) {
        writer.abandon();
        throw;
      }
    });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_CONTAINS(error, "step-00000002.tmp/") << "limit " << limit;
    EXPECT_EQ(entries_in_root(), 1u);
    expect_only_step(1);
  }
  ::signal(SIGXFSZ, old_handler);
}

// A link in the way of a file is replaced, and what it leads to stays.
TEST_F(WriteProtocol, NothingIsWrittenThroughALink) {
  const CheckpointWriter writer = CheckpointWriter::begin(root_, 1);
  std::ofstream(root_ / "mine") << "mine";
  fs::create_symlink("../mine", root_ / "step-00000001.tmp" / kModelFile);
  writer.write_model(run_.layout, run_.weights.data());
  EXPECT_FALSE(fs::is_symlink(root_ / "step-00000001.tmp" / kModelFile));
  EXPECT_EQ(fs::file_size(root_ / "mine"), 4u);
  writer.abandon();
}

TEST_F(WriteProtocol, IncompleteIsNotCommitted) {
  const CheckpointWriter writer = CheckpointWriter::begin(root_, 1);
  const FileRecord model = writer.write_model(run_.layout, run_.weights.data());
  const FileRecord shard = run_.write_shard(writer, 0, 2);
  EXPECT_CONTAINS(error_of([&] {
                    writer.commit(run_.state(1, 2, {model, shard}));
                  }),
                  "optimizer-00001-of-00002.safetensors is not listed");
  const FileRecord other = run_.write_shard(writer, 1, 2);
  fs::remove(root_ / "step-00000001.tmp" / other.name);  // written on a host with a disk of its own
  EXPECT_CONTAINS(error_of([&] {
                    writer.commit(run_.state(1, 2, {model, shard, other}));
                  }),
                  "file system that all hosts share");
  EXPECT_TRUE(list_checkpoints(root_).empty());
}

TEST_F(WriteProtocol, JoinWithoutTheFolder) {
  EXPECT_CONTAINS(error_of([&] { CheckpointWriter::join(root_, 1); }),
                  "file system that all hosts share");
}

// Catches: a start that was given up whose files, or whose folder's new name, end up in the
// checkpoint of the start after it.
TEST_F(WriteProtocol, GenerationsDoNotShareFilesAndTheEarlierOnePublishesNothing) {
  run_.save(root_, 1, 2);
  CheckpointWriter earlier =
      CheckpointWriter::begin(root_, 2, CheckpointWriter::Reach::kAllHosts, 3);
  const CheckpointState state = run_.state(2,
                                           2,
                                           {earlier.write_model(run_.layout, run_.weights.data()),
                                            run_.write_shard(earlier, 0, 2),
                                            run_.write_shard(earlier, 1, 2)});
  EXPECT_TRUE(fs::exists(root_ / "step-00000002.g3.tmp"));
  earlier.call_before_commit([] { throw CheckpointError("given up"); });
  EXPECT_CONTAINS(error_of([&] { earlier.commit(state); }), "given up");
  expect_only_step(1);
  const CheckpointWriter later =
      CheckpointWriter::begin(root_, 2, CheckpointWriter::Reach::kAllHosts, 4);
  EXPECT_FALSE(fs::exists(root_ / "step-00000002.g3.tmp")) << "leftovers are removed";
  earlier.abandon();
  EXPECT_TRUE(fs::exists(root_ / "step-00000002.g4.tmp")) << "it removes its own alone";
  later.abandon();
}

TEST_F(WriteProtocol, RootThatCannotBe) {
  set_bytes(folder_.path() / "run", "a file");
  EXPECT_NE(error_of([&] { CheckpointWriter::begin(root_, 1); }), "");
}

TEST_F(WriteProtocol, ReplacesTheSameStep) {
  run_.save(root_, 1, 2);
  run_.weights[0] = 42;
  run_.save(root_, 1, 4);
  expect_only_step(1);
  EXPECT_EQ(entries_in_root(), 1u);
  EXPECT_EQ(run_.load(root_ / "step-00000001", 1).weights[0], 42);
}

// The way of file systems that cannot exchange two names, and a death in the middle of it.
TEST_F(WriteProtocol, ReplacesWithoutExchange) {
  run_.save(root_, 1, 1);
  run_.weights[0] = 42;
  const fs::path elsewhere = run_.save(folder_.path() / "elsewhere", 1, 1);
  fs::rename(elsewhere, root_ / "step-00000001.tmp");
  publish_checkpoint(root_ / "step-00000001.tmp", root_ / "step-00000001", false);
  expect_only_step(1);
  EXPECT_EQ(entries_in_root(), 1u);
  EXPECT_EQ(run_.load(root_ / "step-00000001", 1).weights[0], 42);

  fs::rename(root_ / "step-00000001", root_ / "step-00000001.replaced");
  expect_only_step(1);
  const CheckpointWriter writer = CheckpointWriter::begin(root_, 1);
  expect_only_step(1);
  writer.abandon();
  run_.save(root_, 1, 1);
  expect_only_step(1);
  EXPECT_EQ(entries_in_root(), 1u);
}

}  // namespace
}  // namespace lockstep::checkpoint
