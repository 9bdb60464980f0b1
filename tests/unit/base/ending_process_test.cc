// Catches: a process that lives taken for one that can only end, so that its lock is lost; and the
// reverse, so that a run folder stays taken.
#include "runtime/base/ending_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/reference/temporary_folder.h"

namespace lockstep {
namespace {

constexpr const char* kNothing = "0000000000000000";
constexpr const char* kKill = "0000000000000100";

class EndingProcess : public ::testing::Test {
 protected:
  void thread(int number, const char* pending, unsigned flags) const {
    const auto folder = proc_.path() / "7" / "task" / std::to_string(number);
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "status") << "Name:\tSigPnd: 0\nState:\tD (disk sleep)\nSigPnd:\t"
                                     << pending << "\nShdPnd:\t" << kKill << "\n";
    std::ofstream(folder / "stat") << number << " (a) b) D 1 7 7 0 -1 " << flags << " 0 0\n";
  }
  testing::TemporaryFolder proc_;
};

TEST_F(EndingProcess, AllThreadsHaveGotKillOrAreExiting) {
  EXPECT_FALSE(is_ending(7, proc_.path())) << "there is none";
  thread(7, kKill, 0x400040);
  EXPECT_TRUE(is_ending(7, proc_.path()));
  thread(8, kNothing, 0x400044);
  EXPECT_TRUE(is_ending(7, proc_.path()));
  thread(9, kNothing, 0x400040);
  EXPECT_FALSE(is_ending(7, proc_.path()));
}

TEST_F(EndingProcess, ThisOneLives) { EXPECT_FALSE(is_ending(::getpid())); }

}  // namespace
}  // namespace lockstep
