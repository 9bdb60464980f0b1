// Catches: a fault of a host that `lockstep doctor` does not name, a finding without its cost and
// remedy, a warning about a sound machine, and facts that JSON changes.
#include <utility>

#include "launcher/doctor/fields.h"
#include "launcher/doctor/host_pairs.h"
#include "tests/unit/launcher/doctor_hosts.h"

namespace lockstep::doctor {
namespace {

TEST_F(Doctor, IsSilentOnASoundMachine) {
  EXPECT_EQ(names(), Names());
  give_infiniband();
  EXPECT_EQ(names(), Names());
  give_gpus();
  EXPECT_EQ(names(), Names());
  for (const std::string& line : lines_of(judge(run_), 2))
    EXPECT_EQ(line.substr(0, 3), "ok ") << line;
}

TEST_F(Doctor, FindsNothingOnOneRankWithoutNetwork) {
  run_.ranks.resize(1);
  run_.pairs.clear();
  rank(0).network = {};
  rank(0).local_ranks = 1;
  rank(0).start = {.launcher = "no launcher"};
  EXPECT_EQ(names(), Names());
}

TEST_F(Doctor, FindsRanksOnTheSameCore) {
  rank(0).cpus.allowed = rank(1).cpus.allowed = {3};
  EXPECT_EQ(names(), Names({"cpus.crowded", "cpus.bound"}));
}

TEST_F(Doctor, FindsFewerCpusThanRanks) {
  for (RankFacts& rank : run_.ranks) {
    rank.cpus.allowed = {0};
    rank.cpus.of_host = 1;
  }
  EXPECT_EQ(names(), Names({"cpus.crowded"}));
}

// Open MPI binds up to two ranks to a core each.
TEST_F(Doctor, FindsOneCoreForManyThreads) {
  rank(0).cpus.allowed = {0, 8};
  rank(1).cpus.allowed = {1, 9};
  EXPECT_EQ(names(), Names({"cpus.bound"}));
  rank(0).cpus.allowed = {0, 1, 2, 3};
  rank(1).cpus.allowed = {4, 5, 6, 7};
  EXPECT_EQ(names(), Names({"cpus.bound"})) << "half of the CPUs";
  rank(0).cpus.hyperthreads = true;
  EXPECT_EQ(names(), Names()) << "one hyperthread of each core";
}

TEST_F(Doctor, FindsThreadsThatAVariableForbids) {
  rank(2).cpus.omp_num_threads = 1;
  EXPECT_EQ(names(), Names({"cpus.threads"}));
  rank(2).cpus.omp_num_threads = 8;  // as many as each rank has
  EXPECT_EQ(names(), Names());
  rank(2).cpus.slurm_cpus_per_task = 2;
  EXPECT_EQ(names(), Names({"cpus.threads"}));
  rank(2).cpus.slurm_cpus_per_task = 4;  // cores of two hyperthreads
  EXPECT_EQ(names(), Names());
}

TEST_F(Doctor, FindsAQuotaThatThrottles) {
  rank(0).cpus.quota = 1.5;
  rank(0).cpus.quota_group = "a";
  EXPECT_EQ(names(), Names({"cpus.quota"}));
  rank(0).cpus.quota = 8;
  EXPECT_EQ(names(), Names());
  rank(0).cpus.quota = 1;
  rank(1).cpus.quota_group = "a";
  EXPECT_EQ(names(), Names({"cpus.quota"})) << "one CPU for two ranks";
  rank(0).cpus.quota = 0;
  rank(0).cpus.throttled = 0.4;
  EXPECT_EQ(names(), Names({"cpus.throttled"}));
}

TEST_F(Doctor, FindsDomainsThatOneRankSpans) {
  for (RankFacts& rank : run_.ranks) rank.cpus.domains = 2;
  EXPECT_EQ(names(), Names()) << "a rank for each";
  for (RankFacts& rank : run_.ranks) rank.cpus.domains = 4;
  EXPECT_EQ(names(), Names({"cpus.numa"}));
  give_gpus();
  EXPECT_EQ(names(), Names()) << "bound next to their GPUs";
}

TEST_F(Doctor, FindsProcessorsThatDiffer) {
  rank(2).cpus.model = rank(3).cpus.model = "another";
  EXPECT_EQ(names(), Names({"cpus.differ"}));
}

TEST_F(Doctor, FindsVectorUnitsThatAreLoweredOrDiffer) {
  rank(1).cpus.simd = "AVX2";
  EXPECT_EQ(names(), Names({"simd.lowered", "simd.differ"}));
  for (RankFacts& rank : run_.ranks) {
    rank.cpus.simd = "AVX512";
    rank.cpus.has_amx = true;
  }
  EXPECT_EQ(names(), Names({"simd.no_amx"}));
}

TEST_F(Doctor, FindsLittleMemory) {
  rank(0).memory.available_bytes = kGiB / 2;
  EXPECT_EQ(names(), Names({"memory.little"}));
  rank(0).memory.available_bytes = 100 * kGiB;
  rank(0).memory.huge_pages = "never";
  EXPECT_EQ(names(), Names({"memory.huge_pages"}));
}

TEST_F(Doctor, FindsSharedMemoryThatIsTooSmall) {
  rank(0).memory.shm_free_bytes = 5 << 20;
  EXPECT_EQ(names(), Names({"memory.shm"}));
  EXPECT_EQ(level_of("memory.shm"), Level::kError);
  rank(0).memory.shm_free_bytes = 64 << 20;  // enough for Open MPI
  EXPECT_EQ(names(), Names());
  give_gpus();
  EXPECT_EQ(names(), Names({"memory.shm"})) << "NCCL needs more";
}

TEST_F(Doctor, FindsLimitsThatAreTooLow) {
  LimitFacts& limits = rank(0).limits;
  const LimitFacts sound = limits;
  limits.nofile = 256;
  EXPECT_EQ(names(), Names({"limits.nofile"}));
  EXPECT_EQ(level_of("limits.nofile"), Level::kWarning);
  limits.nofile = 20;
  EXPECT_EQ(level_of("limits.nofile"), Level::kError);
  limits = sound;
  limits.nproc = 30;
  EXPECT_EQ(names(), Names({"limits.nproc"}));
  limits = sound;
  limits.pids_left = 10;
  EXPECT_EQ(names(), Names({"limits.pids"}));
  EXPECT_EQ(level_of("limits.pids"), Level::kError);
  limits = sound;
  limits.file_bytes = kGiB;
  EXPECT_EQ(names(), Names({"limits.fsize"}));
  limits = sound;
  limits.address_space_bytes = 8 * kGiB;
  EXPECT_EQ(names(), Names({"limits.address_space"}));
  limits = sound;
  limits.memlock_bytes = 64 << 10;
  EXPECT_EQ(names(), Names()) << "plain Ethernet locks no memory";
  give_infiniband();
  limits.memlock_bytes = 64 << 10;
  EXPECT_EQ(names(), Names({"limits.memlock"}));
}

TEST_F(Doctor, FindsARunFolderThatCannotBeUsed) {
  DiskFacts& disk = rank(0).disk;
  const DiskFacts sound = disk;
  disk.failure = "no answer within 2 s";
  EXPECT_EQ(names(), Names({"disk.failure"}));
  EXPECT_EQ(level_of("disk.failure"), Level::kError);
  disk = sound;
  disk.free_bytes = 10 << 20;
  EXPECT_EQ(names(), Names({"disk.space"}));
  EXPECT_EQ(level_of("disk.space"), Level::kError);
  disk.free_bytes = kGiB / 2;
  EXPECT_EQ(level_of("disk.space"), Level::kWarning);
  disk = sound;
  disk.free_files = 5;
  EXPECT_EQ(names(), Names({"disk.files"}));
  disk = sound;
  disk.type = "tmpfs";
  EXPECT_EQ(names(), Names({"disk.memory"}));
  disk = sound;
  disk.sync_ms = 800;
  EXPECT_EQ(names(), Names({"disk.slow"}));
}

TEST_F(Doctor, MergesEqualFindingsOfHosts) {
  for (RankFacts& rank : run_.ranks) rank.memory.huge_pages = "never";
  const Findings findings = judge(run_);
  EXPECT_EQ(findings.count(Level::kWarning), 1);
  const std::vector<std::string> lines = lines_of(findings, 2);
  const auto warning = std::ranges::find_if(
      lines, [](const std::string& line) { return line.starts_with("warning"); });
  ASSERT_NE(warning, lines.end());
  EXPECT_TRUE(warning->starts_with("warning  memory   node1, node2: transparent")) << *warning;
}

TEST_F(Doctor, FactsSurviveTheirJson) {
  give_gpus();
  give_infiniband();
  const std::string text = json_of(run_).dump();
  EXPECT_EQ(json_of(from_json<RunFacts>(Json::parse(text))).dump(), text);
}

TEST(RoundsOfPairs, MeetEachOtherOnce) {
  for (int count = 0; count <= 9; ++count) {
    std::set<std::pair<int, int>> met;
    for (const auto& pairs : rounds_of_pairs(count)) {
      std::set<int> busy;
      for (const auto& [a, b] : pairs) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << "two partners at a time";
        EXPECT_TRUE(met.insert({a, b}).second) << "twice";
      }
    }
    EXPECT_EQ(met.size(), static_cast<size_t>(count * (count - 1) / 2)) << count;
  }
}

}  // namespace
}  // namespace lockstep::doctor
