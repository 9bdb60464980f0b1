// Catches: a quota of a control group that is not read, in version 1 or 2, of an outer group or in
// a container; threads of a rank beyond its share.
#include "runtime/base/cpus.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/control_group.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

void plant(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

std::vector<double> quotas_at(const fs::path& root) {
  std::vector<double> quotas;
  for (const CpuQuota& quota : cpu_quotas(root)) quotas.push_back(quota.cpus);
  return quotas;
}

// A machine of control groups of version 2, whose process is in /pod/container.
class Version2 : public ::testing::Test {
 protected:
  Version2() {
    plant(root() / "proc/self/cgroup", "0::/pod/container\n");
    plant(root() / "proc/self/mountinfo",
          "22 1 8:1 / / rw - ext4 /dev/vda rw\n"
          "31 22 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  }
  const fs::path& root() const { return dir_.path(); }
  void set(const std::string& group, const std::string& text) {
    plant(root() / "sys/fs/cgroup" / group / "cpu.max", text);
  }
  testing::TemporaryFolder dir_;
};

TEST_F(Version2, NoQuota) {
  EXPECT_EQ(quotas_at(root()), std::vector<double>());
  set("pod/container", "max 100000\n");
  EXPECT_EQ(quotas_at(root()), std::vector<double>());
}

TEST_F(Version2, InTheUsualPlaceIfNoMountIsShown) {
  plant(root() / "proc/self/mountinfo", "");
  set("pod/container", "150000 100000\n");
  EXPECT_EQ(quotas_at(root()), std::vector<double>({1.5}));
}

TEST_F(Version2, AlsoOfOuterGroups) {
  set("pod/container", "350000 100000\n");
  EXPECT_EQ(quotas_at(root()), std::vector<double>({3.5}));
  set("pod", "100000 50000\n");
  EXPECT_EQ(quotas_at(root()), std::vector<double>({3.5, 2}));
}

TEST(Version1, TheHierarchyThatHasCpu) {
  const testing::TemporaryFolder dir;
  const fs::path root = dir.path();
  plant(root / "proc/self/cgroup",
        "3:cpuset:/\n2:cpu,cpuacct:/docker/4f\n1:name=systemd:/x\n0::/\n");
  plant(root / "proc/self/mountinfo",
        "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
        "34 31 0:31 /docker/4f /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
  const fs::path folder = root / "sys/fs/cgroup/cpu,cpuacct";  // shows the container's own group
  plant(folder / "cpu.cfs_quota_us", "-1\n");
  plant(folder / "cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quotas_at(root), std::vector<double>());
  plant(folder / "cpu.cfs_quota_us", "20000\n");
  EXPECT_EQ(quotas_at(root), std::vector<double>({0.2}));
  for (const ControlGroup& group : control_groups("memory", root)) EXPECT_EQ(group.version, 2);
}

CpuLimits limits_of(int cpus) {
  CpuLimits limits;
  for (int cpu = 0; cpu < cpus; ++cpu) limits.cpus.push_back(cpu);
  return limits;
}

TEST(CpuShare, OfTheMask) {
  EXPECT_EQ(share_of(limits_of(8), 1).cpus, 8);
  EXPECT_EQ(share_of(limits_of(8), 3).cpus, 2);
  EXPECT_EQ(share_of(limits_of(8), 3).reason, "8 CPUs for 3 ranks");
  EXPECT_EQ(share_of(limits_of(2), 4).cpus, 1);
}

TEST(CpuShare, OfTheQuota) {
  CpuLimits limits = limits_of(8);
  limits.quotas = {{0.2, "pod"}};
  EXPECT_EQ(share_of(limits, 1).cpus, 1);
  EXPECT_EQ(share_of(limits, 1).reason, "a quota of 0.2 CPUs");
  limits.quotas[0].cpus = 1;
  EXPECT_EQ(share_of(limits, 1).reason, "a quota of 1 CPU");
  limits.quotas[0].cpus = 2.5;
  EXPECT_EQ(share_of(limits, 1).cpus, 3);
  // Bound to a core each, but under one quota.
  EXPECT_EQ(share_of(limits, 8, 1, {2}).cpus, 1);
  // A quota each, and one for both.
  limits.quotas = {{2, "a"}, {3, "both"}};
  EXPECT_EQ(share_of(limits, 4, 2, {1, 2}).reason, "a quota of 3 CPUs for 2 ranks");
  limits.quotas.resize(1);
  limits.quotas[0].cpus = 100;
  EXPECT_EQ(share_of(limits, 2).cpus, 4);
}

TEST(CpuShare, NoMoreThanTheEnvironmentNames) {
  CpuLimits limits = limits_of(8);
  limits.slurm_cpus_per_task = 4;
  EXPECT_EQ(share_of(limits, 1).reason, "SLURM_CPUS_PER_TASK=4");
  limits.omp_num_threads = 2;
  EXPECT_EQ(share_of(limits, 1).cpus, 2);
  EXPECT_EQ(share_of(limits, 1).reason, "OMP_NUM_THREADS=2");
  limits.omp_num_threads = 64;
  EXPECT_EQ(share_of(limits, 1).cpus, 4);
}

TEST(CpuShare, NoMoreThanTheCoresOfADomain) {
  CpuLimits limits = limits_of(8);
  limits.domain_cores = 4;
  EXPECT_EQ(share_of(limits, 1).cpus, 4);
  EXPECT_EQ(share_of(limits, 1).reason, "4 cores of a NUMA domain");
  limits.quotas = {{5, "both"}};
  EXPECT_EQ(share_of(limits, 8, 1, {2}).cpus, 2);
}

TEST(CpuLimits, OfTheEnvironment) {
  const auto omp = [](const char* text) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    const auto number = find_cpu_limits().omp_num_threads;
    ::unsetenv("OMP_NUM_THREADS");
    return number.value_or(0);
  };
  EXPECT_EQ(omp("3"), 3);
  EXPECT_EQ(omp("4,2"), 4);
  EXPECT_EQ(omp(" 4 , 2"), 4);
  EXPECT_EQ(omp(""), 0);
  EXPECT_EQ(omp("all"), 0);
  EXPECT_EQ(omp("-1"), 0);
  // No number of threads, though they begin with one.
  for (const char* const text : {"1e9", "1.5", "2threads", "1 2", " ", ","})
    EXPECT_EQ(omp(text), 0) << text;
}

}  // namespace
}  // namespace lockstep
