// Catches: ranks that share cores though there are enough, worlds that are too large for the
// machine and do not say so, a hostfile that is misread, a child process that outlives its time,
// and a signal that is lost.
#include "launcher/scale/start.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "launcher/processes/run_process.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/time.h"
#include "tests/reference/temporary_folder.h"
#include "tests/reference/text_checks.h"

namespace lockstep::scale {
namespace {

using lockstep::testing::TemporaryFolder;

Launcher open_mpi() {
  Launcher launcher;
  launcher.kind = Launcher::Kind::kOpenMpi;
  launcher.command = {"mpirun"};
  return launcher;
}

const Processors kFourCores{8, 4};  // of two hardware threads each

TEST(ScaleStart, CoresWhereTheyAreEnough) {
  const WorldStart start = start_of(open_mpi(), kFourCores, 2, 2);
  EXPECT_EQ(start.command,
            (std::vector<std::string>{
                "mpirun", "-n", "2", "--bind-to", "core", "--map-by", "slot:PE=2"}));
  EXPECT_FALSE(start.oversubscribed);
}

TEST(ScaleStart, HardwareThreadsWhereCoresAreTooFew) {
  const WorldStart start = start_of(open_mpi(), kFourCores, 4, 2);
  EXPECT_EQ(start.command,
            (std::vector<std::string>{"mpirun",
                                      "-n",
                                      "4",
                                      "--use-hwthread-cpus",
                                      "--bind-to",
                                      "hwthread",
                                      "--map-by",
                                      "slot:PE=2"}));
  EXPECT_FALSE(start.oversubscribed);
}

TEST(ScaleStart, UnboundAndMarkedBeyondTheCpus) {
  const WorldStart start = start_of(open_mpi(), kFourCores, 8, 2);
  EXPECT_EQ(
      start.command,
      (std::vector<std::string>{"mpirun", "-n", "8", "--oversubscribe", "--bind-to", "none"}));
  EXPECT_TRUE(start.oversubscribed);
}

// Open MPI binds to cores that the mask of this process does not have.
TEST(ScaleStart, UnboundWithinSomeCpusOfTheHost) {
  Processors some = kFourCores;
  some.online = 16;
  const WorldStart start = start_of(open_mpi(), some, 2, 2);
  EXPECT_EQ(
      start.command,
      (std::vector<std::string>{"mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"}));
  EXPECT_EQ(start.binding, "none: within 8 of the host's 16 CPUs");
  EXPECT_FALSE(start.oversubscribed);
  some.online = 8;
  const std::vector<std::string> command = start_of(open_mpi(), some, 2, 2).command;
  EXPECT_EQ(std::count(command.begin(), command.end(), "core"), 1);
}

TEST(ScaleStart, ProcessorsAreThoseOfTheMask) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  int last = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &before)) last = cpu;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Processors here = processors_here();
  sched_setaffinity(0, sizeof(before), &before);
  EXPECT_EQ(here.cpus, 1);
  EXPECT_EQ(here.numbers, (std::vector<int>{last}));
  EXPECT_EQ(here.are_some(), sysconf(_SC_NPROCESSORS_ONLN) > 1);
}

TEST(ScaleStart, FlagsOfTheUserStay) {
  Launcher launcher = open_mpi();
  launcher.command = {"mpirun", "--bind-to", "none"};
  EXPECT_EQ(start_of(launcher, kFourCores, 2, 1).command,
            (std::vector<std::string>{"mpirun", "--bind-to", "none", "-n", "2"}));
  launcher.command = {"mpiexec"};
  launcher.kind = Launcher::Kind::kOther;
  EXPECT_EQ(start_of(launcher, kFourCores, 2, 1).command,
            (std::vector<std::string>{"mpiexec", "-n", "2"}));
}

TEST(ScaleStart, Slurm) {
  Launcher launcher;
  launcher.kind = Launcher::Kind::kSrun;
  launcher.command = {"srun"};
  launcher.hosts.count = 2;
  EXPECT_EQ(start_of(launcher, kFourCores, 8, 2).command,
            (std::vector<std::string>{"srun", "-n", "8", "--cpus-per-task", "2"}));
  EXPECT_EQ(ranks_per_host(launcher, 5), 3);
}

TEST(ScaleStart, Hostfile) {
  const TemporaryFolder folder;
  const std::string path =
      (folder.path() / folder.write("hosts", "# two\nada slots=2\n\nbob slots=6 # big\neve\n"))
          .string();
  Launcher launcher = open_mpi();
  launcher.hostfile = path;
  launcher.hosts = read_hostfile(path, 4);
  EXPECT_EQ(launcher.hosts.count, 3);
  EXPECT_EQ(launcher.hosts.max_slots, 6);
  EXPECT_EQ(launcher.hosts.total_slots, 12);
  EXPECT_EQ(ranks_per_host(launcher, 12), 6);
  const WorldStart start = start_of(launcher, {2, 2}, 12, 1);
  EXPECT_FALSE(start.oversubscribed);  // other hosts have CPUs of their own
  EXPECT_EQ(
      start.command,
      (std::vector<std::string>{
          "mpirun", "-n", "12", "--hostfile", path, "--bind-to", "core", "--map-by", "slot:PE=1"}));
  EXPECT_THROW(read_hostfile((folder.path() / "none").string(), 4), ConfigError);
  // Of this host the CPUs are known, whether it is alone in the file or not.
  for (const char* text : {"localhost slots=4\n", "ada slots=4\nlocalhost slots=4\n"}) {
    folder.write("hosts", text);
    launcher.hosts = read_hostfile(path, 2);
    EXPECT_FALSE(start_of(launcher, {2, 2}, 2, 1).oversubscribed) << text;
    const WorldStart crowded = start_of(launcher, {2, 2}, 4, 1);
    EXPECT_TRUE(crowded.oversubscribed) << text;
    for (const char* word : {"--oversubscribe", "--bind-to", "none"})
      EXPECT_EQ(std::count(crowded.command.begin(), crowded.command.end(), word), 1) << word;
  }
  folder.write("hosts", "ada slots=0\n");
  EXPECT_THROW(read_hostfile(path, 4), ConfigError);
  // A remote shell would take the first for an option.
  for (const char* text : {"-oProxyCommand=true slots=2\n",
                           "\x7f"
                           "ELF\x02\n",
                           "a;b\n"}) {
    folder.write("hosts", text);
    EXPECT_THROW(read_hostfile(path, 4), ConfigError) << text;
  }
  folder.write("hosts", "ada@bob.example:22 slots=2\n[fe80::1%eth0] slots=2\n");
  EXPECT_EQ(read_hostfile(path, 4).total_slots, 4);
  folder.write("hosts", "# nobody\n");
  EXPECT_THROW(read_hostfile(path, 4), ConfigError);
}

TEST(ScaleProcess, OutputAndExitCode) {
  const TemporaryFolder folder;
  const std::filesystem::path log = folder.path() / "log";
  const launcher::ProcessEnd end = launcher::run_process(
      {"sh", "-c", "pwd; echo \"$1\" >&2; cat; exit 3", "sh", "a  b"}, log, 60, folder.path());
  EXPECT_EQ(end.exit_code, 3);
  EXPECT_FALSE(end.out_of_time);
  EXPECT_EQ(read_file(log, 1000), std::filesystem::canonical(folder.path()).string() + "\na  b\n");
}

TEST(ScaleProcess, WhatIsNotThere) {
  const TemporaryFolder folder;
  const std::filesystem::path log = folder.path() / "log";
  const std::string absent = folder.path() / "absent";
  EXPECT_EQ(launcher::run_process({absent}, log, 60).exit_code, 127);
  EXPECT_CONTAINS(read_file(log, 1000), "cannot start " + absent);
  EXPECT_EQ(launcher::find_program("no-such-program"), "");
  EXPECT_NE(launcher::find_program("sh"), "");
}

// Whether a process is there and has not ended: one that nobody has waited for still has a number.
bool lives(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  return !text.empty() && text.find(") Z") == std::string::npos;
}

TEST(ScaleProcess, EndsAllThatAChildStartedWhenItsTimeIsOver) {
  const TemporaryFolder folder;
  const std::filesystem::path log = folder.path() / "log";
  const launcher::ProcessEnd end =
      launcher::run_process({"sh", "-c", "sleep 100 & echo $!; wait"}, log, 1);
  EXPECT_TRUE(end.out_of_time);
  EXPECT_NE(end.exit_code, 0);
  const std::string pid = std::to_string(std::stoi(read_file(log, 1000)));
  const double limit_ms = now_ms() + 5000;
  while (lives(pid) && now_ms() < limit_ms) usleep(10000);
  EXPECT_FALSE(lives(pid));
}

TEST(ScaleProcess, ASignalEndsTheChildAndIsHandedOn) {
  const TemporaryFolder folder;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    signal(number, SIG_DFL);  // an ignored one would stay so
    try {
      launcher::run_process(
          {"sh", "-c", "kill -$1 $PPID; exec sleep 100", "sh", std::to_string(number)},
          folder.path() / "log",
          60);
      ADD_FAILURE() << "signal " << number << " was lost";
    } catch (const launcher::Interrupted& interrupted) {
      EXPECT_EQ(interrupted.signal(), number);
      EXPECT_CONTAINS(interrupted.what(), "interrupted by SIG");
    }
  }
}

}  // namespace
}  // namespace lockstep::scale
