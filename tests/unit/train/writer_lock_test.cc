// Catches: two writers in one run folder, a start that a dead writer's lock blocks, a requeued job
// that does not wait for the one before, and a run that goes on in a folder that is not its own.
#include "runtime/train/folder/writer_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>

#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/train/folder/run_folder.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::train {
namespace {

using std::chrono::milliseconds;

class WriterLockTest : public ::testing::Test {
 protected:
  std::unique_ptr<WriterLock> lock(const WriterLockOptions& options = {}) {
    return std::make_unique<WriterLock>(opened_.fd, folder_, options);
  }
  // What the second one is told; empty where it is not refused.
  std::string refusal(const WriterLockOptions& options = {}) {
    try {
      lock(options);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "";
  }

  const testing::TemporaryFolder temporary_;
  const std::filesystem::path folder_ = temporary_.path(), file_ = folder_ / "writer.lock";
  const Descriptor opened_{::open(folder_.c_str(), O_RDONLY | O_DIRECTORY)};
  // Without system locks, in the pace of a test.
  const WriterLockOptions heartbeat_{.system_locks = false, .beat_s = 0.05, .silence_s = 0.6};
};

TEST_F(WriterLockTest, TheSecondIsToldWhoHoldsIt) {
  const auto first = lock({.job = "77"});
  const std::string text = refusal();
  for (const std::string& word : {folder_.string(),
                                  fmt::format("process {} on host {}", ::getpid(), host_name()),
                                  std::string("since 20"),
                                  std::string("job 77")})
    EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
}

TEST_F(WriterLockTest, OthersSeeTheHolderWithoutTakingTheLock) {
  EXPECT_FALSE(writer_of(folder_));
  for (const WriterLockOptions& options : {WriterLockOptions{}, heartbeat_}) {
    auto holder = lock(options);
    const auto seen = writer_of(folder_);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->pid, std::to_string(::getpid()));
    EXPECT_EQ(seen->host, host_name());
    holder.reset();
    EXPECT_FALSE(writer_of(folder_));
  }
  std::ofstream(file_) << "host a\npid 1\nsince today\n";  // left by a process that is dead
  EXPECT_FALSE(writer_of(folder_));
}

TEST_F(WriterLockTest, TheEndGivesItBackAndRemovesTheFile) {
  lock();
  EXPECT_FALSE(std::filesystem::exists(file_));
  EXPECT_EQ(refusal(), "");
}

TEST_F(WriterLockTest, AFileThatADeadProcessLeftDoesNotBlock) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto held = lock();
    ::_exit(0);  // as killed: nothing is tidied
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(std::filesystem::exists(file_));
  EXPECT_EQ(refusal(), "");
}

TEST_F(WriterLockTest, AProgramThatTheHolderStartsDoesNotKeepIt) {
  auto first = lock();
  const pid_t child = ::fork();
  if (child == 0) ::execlp("sleep", "sleep", "60", nullptr);
  std::this_thread::sleep_for(milliseconds(200));  // until it is another program
  first.reset();
  EXPECT_EQ(refusal(), "");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(WriterLockTest, ARequeuedJobWaitsForTheOneBefore) {
  for (const WriterLockOptions& options : {WriterLockOptions{.requeued = true, .patience_s = 30},
                                           WriterLockOptions{.job = "5", .patience_s = 30}}) {
    auto first = lock({.job = "5"});
    auto second = std::async(std::launch::async, [&] { return lock(options); });
    EXPECT_EQ(second.wait_for(milliseconds(400)), std::future_status::timeout);
    first.reset();
    EXPECT_NE(second.get(), nullptr);
  }
}

TEST_F(WriterLockTest, ARequeuedJobDoesNotWaitForever) {
  const auto first = lock();
  EXPECT_NE(refusal({.requeued = true, .patience_s = 0.3}), "");
}

TEST_F(WriterLockTest, ARemovedFileIsMadeAgain) {
  const auto first = lock();
  std::filesystem::remove(file_);
  first->check();
  EXPECT_TRUE(std::filesystem::exists(file_));
  EXPECT_NE(refusal(), "");
}

TEST_F(WriterLockTest, WhoLosesItToAnotherOneIsTold) {
  for (const WriterLockOptions& options : {WriterLockOptions{}, heartbeat_}) {
    const auto first = lock(options);
    std::filesystem::remove(file_);
    const auto second = lock(options);
    EXPECT_THROW(first->check(), CheckpointError);
    second->check();
  }
}

TEST_F(WriterLockTest, WithoutLocksABeatingHolderIsNotPushedOut) {
  const auto first = lock(heartbeat_);
  EXPECT_NE(refusal(heartbeat_).find(fmt::format("process {}", ::getpid())), std::string::npos);
  first->check();
}

TEST_F(WriterLockTest, WithoutLocksASilentHolderIs) {
  { std::ofstream(file_) << "host gone\npid 1\nsince 2026-01-01T00:00:00Z\nbeat 0000000007\n"; }
  const auto second = lock(heartbeat_);
  second->check();
  EXPECT_NE(refusal(heartbeat_), "");
}

TEST_F(WriterLockTest, AHolderThatLaunchHasGivenUpLosesIt) {
  for (WriterLockOptions options : {WriterLockOptions{}, heartbeat_}) {
    options.generation = {3, "one"};
    const auto given_up = lock(options);
    WriterLockOptions later = options;
    later.generation = {4, "two"};
    EXPECT_NE(refusal(later), "") << "of another launch, which knows nothing of it";
    later.generation = {3, "one"};
    EXPECT_NE(refusal(later), "") << "of the same start";
    later.generation = {};
    EXPECT_NE(refusal(later), "") << "of none";
    later.generation = {4, "one"};
    const auto next = lock(later);
    next->check();
    EXPECT_THROW(given_up->check(), CheckpointError);
    // Its launch has raised the number when it gave the start up: from then on it is void for all.
    write_generation(folder_, {5, "one"});
    later.generation = {6, "two"};
    const auto stranger = lock(later);
    stranger->check();
    std::filesystem::remove(folder_ / "generation");
  }
}

class RunFolderTest : public ::testing::Test {
 protected:
  const testing::TemporaryFolder temporary_;
  const std::filesystem::path path_ = temporary_.path() / "runs" / "first";
};

TEST_F(RunFolderTest, IsMadeAndLocked) {
  RunFolder first(path_);
  EXPECT_TRUE(std::filesystem::is_directory(path_));
  EXPECT_THROW(RunFolder{path_}, CheckpointError);
  first.check();
}

TEST_F(RunFolderTest, RemovedMovedOrReplacedIsNoticed) {
  RunFolder folder(path_);
  std::filesystem::rename(path_, path_.string() + "-moved");
  EXPECT_THROW(folder.check(), CheckpointError);
  {
    const RunFolder another(path_);
    EXPECT_THROW(folder.check(), CheckpointError);
  }
  std::filesystem::remove_all(path_);
  std::filesystem::rename(path_.string() + "-moved", path_);
  folder.check();
}

TEST_F(RunFolderTest, AGenerationThatIsGivenUpWritesNothing) {
  WriterLockOptions options;
  options.generation = {7, "one"};
  RunFolder folder(path_, options);
  EXPECT_EQ(read_generation(path_).number, 7);
  folder.check();
  const RunGeneration next = next_generation(path_, {7, "one"});
  EXPECT_EQ(next.number, 8);
  EXPECT_THROW(folder.check(), CheckpointError);
  EXPECT_THROW(check_generation(path_, {7, "one"}), CheckpointError);
  check_generation(path_, {8, "one"});
  check_generation(path_, {});
  EXPECT_THROW((RunFolder{path_, options}), CheckpointError) << "it comes too late";
}

TEST_F(RunFolderTest, ALaunchOfAnotherRunEndsNobody) {
  EXPECT_EQ(next_generation(path_, {0, "two"}).number, 1);
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nothing is made";
  WriterLockOptions options;
  options.generation = {7, "one"};
  RunFolder folder(path_, options);
  EXPECT_EQ(next_generation(path_, {0, "two"}).number, 8);
  EXPECT_EQ(read_generation(path_).number, 7);
  folder.check();
}

TEST_F(RunFolderTest, RefusesAFileThatNamesNoGeneration) {
  std::filesystem::create_directories(path_);
  for (const char* text : {"", "launch one\n", "generation 9223372036854775807\nlaunch one\n"}) {
    std::ofstream(path_ / "generation") << text;
    EXPECT_THROW(check_generation(path_, {7, "one"}), CheckpointError) << text;
  }
}

TEST_F(RunFolderTest, WhatADeadRunLeftGoes) {
  const std::filesystem::path root = path_ / "checkpoints";
  for (const char* name : {"step-00000004", "step-00000008.tmp", "step-00000002.tmp-delete"}) {
    std::filesystem::create_directories(root / name);
    std::ofstream(root / name / "part") << "x";
  }
  for (const char* name : {"generation.tmp", "end.json.tmp", "notes.tmp"})
    std::ofstream(path_ / name) << "x";
  const RunFolder folder(path_);
  EXPECT_FALSE(std::filesystem::exists(path_ / "generation.tmp"));
  EXPECT_FALSE(std::filesystem::exists(path_ / "end.json.tmp"));
  EXPECT_TRUE(std::filesystem::exists(path_ / "notes.tmp"));  // none of the run's files
  EXPECT_TRUE(std::filesystem::exists(root / "step-00000004"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root), {}), 1);
}

}  // namespace
}  // namespace lockstep::train
