// Catches: idle time that counts as work, work of others that goes unseen, a run's own ranks that
// are taken for others.
#include "launcher/scale/measured_run.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/scale/start.h"
#include "runtime/base/time.h"

namespace lockstep::scale {
namespace {

TEST(ScaleOtherWork, ReadsWhatTheKernelCounts) {
  // user, nice, system, idle, iowait, irq, softirq, steal, guest
  const std::string stat =
      "cpu  9000 200 300 99999 7777 40 50 60 500\n"
      "cpu0 1000 200 300 99999 7777 40 50 60 500\n"
      "cpu1 1 0 0 0 0 0 0 0 0\n"
      "cpu12 7000 0 0 0 0 0 0 0 0\n"
      "intr 5 6 7 8 9 10 11 12\n";
  EXPECT_DOUBLE_EQ(busy_cpu_seconds(stat, {0}, 100), 16.5);
  EXPECT_DOUBLE_EQ(busy_cpu_seconds(stat, {0, 1}, 100), 16.51);
  EXPECT_LT(busy_cpu_seconds(stat, {2}, 100), 0);
  EXPECT_LT(busy_cpu_seconds("", {0}, 100), 0);
}

pid_t start_busy_child() {
  const pid_t child = fork();
  if (child == 0)
    for (volatile int i = 0;;) {
      i = i + 1;
    }
  return child;
}

// A child that goes on counts as another's work, the same child as own work once it has ended: so
// what others do on a busy machine cancels out.
TEST(ScaleOtherWork, ChildrenThatHaveEndedAreOwnWork) {
  const OtherWork measured(processors_here().numbers);
  const double start_ms = now_ms();
  const pid_t child = start_busy_child();
  usleep(500'000);
  const double while_it_runs = measured.cpus() * (now_ms() - start_ms);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const double when_it_ended = measured.cpus() * (now_ms() - start_ms);
  EXPECT_GE(while_it_runs, 50);  // CPU milliseconds: it or, in its place, others
  EXPECT_LT(when_it_ended, while_it_runs);
}

}  // namespace
}  // namespace lockstep::scale
