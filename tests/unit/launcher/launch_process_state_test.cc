// Catches: a process that does not end whose reason is not named, or that is taken for another one;
// one that has ended and is taken for one that has not.
#include "launcher/processes/process_state.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "tests/reference/temporary_folder.h"

namespace lockstep::launch {
namespace {

namespace fs = std::filesystem;

class ProcessState : public ::testing::Test {
 protected:
  void plant(const std::string& path, const std::string& text) {
    fs::create_directories((root() / path).parent_path());
    std::ofstream(root() / path) << text;
  }
  // A thread of process 41, with 7 + 5 ticks, that began at 99.
  void thread(const std::string& folder, char state, const std::string& channel) {
    plant(folder + "/stat",
          fmt::format("41 (a) b (c) {} 1 41 41 0 -1 4194560 0 0 0 0 7 5 0 0 20 0 2 0 99 0 0\n",
                      state));
    plant(folder + "/wchan", channel);
  }
  fs::path root() const { return dir_.path(); }
  testing::TemporaryFolder dir_;
};

TEST_F(ProcessState, NamesTheThreadThatTheKernelKeeps) {
  thread("proc/41", 'Z', "0");
  thread("proc/41/task/41", 'Z', "0");
  thread("proc/41/task/42", 'D', "nfs_wait_bit_killable");
  EXPECT_EQ(launcher::state_text(41, root()),
            "state D (uninterruptible sleep), waiting in nfs_wait_bit_killable");
  EXPECT_TRUE(launcher::is_there({41, 99}, root() / "proc"));
  EXPECT_EQ(launcher::ticks_if_blocked(41, root() / "proc"), 12);
}

TEST_F(ProcessState, NamesTheGroupThatHasFrozenIt) {
  thread("proc/41", 'D', "hrtimer_nanosleep");
  plant("proc/41/cgroup", "6:freezer:/job/step\n0::/\n");
  plant("proc/self/mountinfo",
        "31 22 0:27 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n");
  plant("sys/fs/cgroup/freezer/job/step/freezer.state", "FROZEN\n");
  plant("sys/fs/cgroup/freezer/job/step/freezer.self_freezing", "0\n");
  plant("sys/fs/cgroup/freezer/job/freezer.state", "FROZEN\n");
  plant("sys/fs/cgroup/freezer/job/freezer.self_freezing", "1\n");
  const std::string text = launcher::state_text(41, root());
  EXPECT_TRUE(text.ends_with("frozen by the control group " +
                             (root() / "sys/fs/cgroup/freezer/job").string()))
      << text;
}

TEST_F(ProcessState, WhatHasEndedOrIsAnotherOneIsNotThere) {
  EXPECT_FALSE(launcher::is_there({41, 99}, root() / "proc"));
  EXPECT_EQ(launcher::given_up_now(41, root() / "proc").start_ticks, 0);
  EXPECT_FALSE(launcher::is_there({41, 0}, root() / "proc"));
  thread("proc/41", 'S', "poll_schedule_timeout");
  EXPECT_TRUE(launcher::is_there({41, 99}, root() / "proc"));
  EXPECT_FALSE(launcher::is_there({41, 98}, root() / "proc"));
  EXPECT_EQ(launcher::ticks_if_blocked(41, root() / "proc"), std::nullopt);
  thread("proc/41", 'Z', "0");
  EXPECT_FALSE(launcher::is_there({41, 99}, root() / "proc"));
}

TEST_F(ProcessState, OfARealProcess) {
  const launcher::GivenUp here = launcher::given_up_now(::getpid());
  EXPECT_GT(here.start_ticks, 0);
  EXPECT_TRUE(launcher::is_there(here));
}

TEST(GivenUp, ComesBackAsItWas) {
  const std::vector<launcher::GivenUp> processes = {{41, 99}, {7, 12345678901}};
  EXPECT_EQ(launcher::given_up_from(launcher::to_text(processes)), processes);
  EXPECT_TRUE(launcher::given_up_from("").empty());
  EXPECT_EQ(launcher::given_up_from("x,41:,:3,41:99").size(), 1);
}

}  // namespace
}  // namespace lockstep::launch
