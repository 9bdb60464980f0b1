// RAPL on folders that look like those of Intel's and AMD's machines. Catches: energy that counts
// twice or not at all, a counter that starts again, and files that cannot be read taken for zero.
#include "runtime/metrics/cpu_energy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/reference/fake_powercap.h"
#include "tests/reference/text_checks.h"

namespace lockstep::metrics {
namespace {

using testing::FakePowercap;

constexpr uint64_t kJoule = 1'000'000;

TEST(CpuEnergy, PackagesAndTheirMemoryAreAddedAndNothingTwice) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  files.add("intel-rapl:0:0", "core");
  files.add("intel-rapl:0:1", "uncore");
  files.add("intel-rapl:0:2", "dram");
  files.add("intel-rapl:1", "package-1-die-1");
  files.add("intel-rapl:1:0", "dram");
  files.add("intel-rapl:2", "psys");
  files.add("intel-rapl-mmio:0", "package-0");
  files.add("dtpm:0", "package-0");
  std::filesystem::create_directories(files.path() / "intel-rapl");  // the controller
  files.set("intel-rapl:0", 7 * kJoule);
  CpuEnergy energy(files.path());
  EXPECT_EQ(energy.why_not(), "");
  EXPECT_EQ(energy.joules(), 0);
  files.set("intel-rapl:0", 8 * kJoule);
  files.set("intel-rapl:0:0", 16 * kJoule);
  files.set("intel-rapl:0:1", 32 * kJoule);
  files.set("intel-rapl:0:2", 64 * kJoule);
  files.set("intel-rapl:1", 128 * kJoule);
  files.set("intel-rapl:1:0", 256 * kJoule);
  files.set("intel-rapl:2", 512 * kJoule);
  files.set("intel-rapl-mmio:0", 1024 * kJoule);
  files.set("dtpm:0", 2048 * kJoule);
  EXPECT_EQ(energy.joules(), 1 + 64 + 128 + 256);
  EXPECT_EQ(energy.joules(), 1 + 64 + 128 + 256);
}

TEST(CpuEnergy, AmdHasNoMemory) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  files.add("intel-rapl:0:0", "core");
  CpuEnergy energy(files.path());
  files.set("intel-rapl:0", 1'500'000);
  files.set("intel-rapl:0:0", kJoule);
  EXPECT_EQ(energy.joules(), 1.5);
}

TEST(CpuEnergy, CountersStartAgain) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0", 100 * kJoule);
  files.add("intel-rapl:1", "package-1", 1000 * kJoule);
  files.set("intel-rapl:0", 90 * kJoule);
  files.set("intel-rapl:1", 990 * kJoule);
  CpuEnergy energy(files.path());
  files.set("intel-rapl:0", 20 * kJoule);
  EXPECT_EQ(energy.joules(), 30);
  files.set("intel-rapl:1", 5 * kJoule);
  EXPECT_EQ(energy.joules(), 45);
  files.set("intel-rapl:0", 10 * kJoule);
  EXPECT_EQ(energy.joules(), 135);
}

TEST(CpuEnergy, AFileThatFailsForAWhileLosesNothing) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  CpuEnergy energy(files.path());
  std::filesystem::remove(files.path() / "intel-rapl:0/energy_uj");
  EXPECT_EQ(energy.joules(), 0);
  files.set("intel-rapl:0", 3 * kJoule);
  EXPECT_EQ(energy.joules(), 3);
}

TEST(CpuEnergy, AbsentFilesAreNamed) {
  const testing::TemporaryFolder folder;
  const std::string nowhere = folder.path() / "powercap";
  EXPECT_EQ(CpuEnergy(nowhere).why_not(),
            "cannot open '" + nowhere + "': No such file or directory");
  FakePowercap files;
  EXPECT_EQ(CpuEnergy(files.path()).why_not(),
            "cannot read '" + files.path().string() + "': it has no RAPL counter of a package");
  // In a container that hides them, links lead nowhere.
  std::filesystem::create_symlink("../nowhere", files.path() / "intel-rapl:0");
  EXPECT_CONTAINS(CpuEnergy(files.path()).why_not(), "/intel-rapl:0/name': No such file");
}

TEST(CpuEnergy, OneUnreadablePackageMakesAllUnreadable) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  files.add("intel-rapl:1", "package-1");
  std::filesystem::remove(files.path() / "intel-rapl:1/energy_uj");
  CpuEnergy energy(files.path());
  EXPECT_CONTAINS(energy.why_not(), "/intel-rapl:1/energy_uj': No such file");
  files.set("intel-rapl:0", kJoule);
  EXPECT_EQ(energy.joules(), 0);
  std::ofstream(files.path() / "intel-rapl:1/energy_uj") << "12x\n";
  EXPECT_CONTAINS(CpuEnergy(files.path()).why_not(), "/intel-rapl:1/energy_uj': it has no number");
}

// As for everybody but root since Linux 5.10.
TEST(CpuEnergy, APermissionThatIsMissingIsNamed) {
  constexpr uid_t kNobody = 65534;
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  const std::filesystem::path file = files.path() / "intel-rapl:0/energy_uj";
  std::filesystem::permissions(files.path(), std::filesystem::perms(0755));
  std::filesystem::permissions(file, std::filesystem::perms(0));
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(kNobody) != 0) GTEST_SKIP() << "this user cannot become another one";
  const std::string why_not = CpuEnergy(files.path()).why_not();
  if (root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_EQ(why_not, "cannot open '" + file.string() + "': Permission denied");
}

TEST(CpuEnergy, TheWatchEndsWithItsOwner) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  CpuEnergy energy(files.path());
  energy.watch();
  files.set("intel-rapl:0", 2 * kJoule);
  EXPECT_EQ(energy.joules(), 2);
}

}  // namespace
}  // namespace lockstep::metrics
