// Catches: a fault of a host, a network or a GPU that `lockstep doctor` does not name, a finding
// without its cost and remedy, and a warning about a sound machine.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "launcher/doctor/fields.h"
#include "launcher/doctor/host_pairs.h"
#include "launcher/doctor/judge.h"

namespace lockstep::doctor {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

InterfaceFacts ethernet(const std::string& name, const std::string& address, int64_t mbit) {
  return {.name = name,
          .kind = "ethernet",
          .addresses = {address},
          .speed_mbit = mbit,
          .mtu = 1500,
          .packets = 1'000'000'000,
          .errors = 3};
}

GpuFacts gpu(int number) {
  return {.name = "NVIDIA H100",
          .pci_bus_id = "0000:0" + std::to_string(number) + ":00.0",
          .memory_bytes = 80 * kGiB,
          .used_bytes = 5e8,
          .temperature_c = 40,
          .corrected_errors = 2,
          .uncorrected_errors = 0};
}

// Two ranks on each of two hosts with 16 CPUs and two GPUs.
class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    for (int r = 0; r < 4; ++r) {
      RankFacts& rank = run_.ranks.emplace_back();
      rank.host = r < 2 ? "node1" : "node2";
      rank.machine = rank.host + "/boot";
      rank.local_rank = r % 2;
      rank.local_ranks = 2;
      for (int cpu = 0; cpu < 16; ++cpu) rank.cpus.allowed.push_back(cpu);
      rank.cpus.of_host = 16;
      rank.cpus.model = "a processor";
      rank.cpus.simd = rank.cpus.best_simd = "AVX512";
      rank.memory = {.total_bytes = 256 * kGiB,
                     .available_bytes = 200 * kGiB,
                     .huge_pages = "madvise",
                     .shm_bytes = 128 * kGiB,
                     .shm_free_bytes = 128 * kGiB};
      rank.limits.nofile = 1 << 20;
      rank.limits.memlock_bytes = 8 << 20;
      rank.start.launcher = "mpirun";
      rank.start.library = "Open MPI v4.1.4";
      rank.start.mpi_network = "tcp";
      const std::string address = r < 2 ? "10.0.0.1" : "10.0.0.2";
      rank.network.interfaces = {{.name = "lo", .kind = "loopback", .mtu = 65536},
                                 ethernet("eth0", address, 10000)};
      rank.network.first_port = 32768;
      rank.network.last_port = 60999;
      rank.network.used = "eth0";
      rank.network.used_address = address;
      rank.network.used_why = "the host's name resolves to it";
      rank.gpus.why_none = "no NVIDIA driver is loaded";
    }
    run_.ranks[0].disk = {.path = "/scratch/runs",
                          .type = "xfs",
                          .free_bytes = 900 * kGiB,
                          .free_files = 1'000'000,
                          .sync_ms = 2,
                          .rename_ms = 1};
    run_.pairs = {{.a = "node1", .b = "node2", .gbit = 9.4, .round_trip_ms = 0.05}};
    run_.transport = "tcp";
  }

  void give_gpus() {
    for (RankFacts& rank : run_.ranks) {
      rank.gpus = {};
      if (rank.local_rank > 0) continue;
      rank.gpus.gpus = {gpu(1), gpu(2)};
      rank.gpus.pairs = {{.from = 0, .to = 1, .gbytes = 380, .should_gbytes = 450}};
      rank.gpus.driver = "570.86.10 for CUDA 12.8";
      rank.gpus.runtime = "CUDA 12.8";
      rank.gpus.cudnn = "9.10";
      rank.gpus.nccl = "2.27.3";
    }
  }

  void give_infiniband() {
    for (RankFacts& rank : run_.ranks) {
      rank.network.rdma = {{"mlx5_0", 1, "InfiniBand", "ACTIVE", 200}};
      rank.start.mpi_network = "fast";
      rank.limits.memlock_bytes = kUnlimited;
    }
    run_.transport = "mpi";
    run_.pairs[0].gbit = 150;
  }

  RankFacts& rank(size_t number) { return run_.ranks[number]; }
  GpusFacts& gpus() { return run_.ranks[0].gpus; }

  // The names of the warnings and errors, each of which must say what to do.
  std::set<std::string> names() const {
    std::set<std::string> names;
    const Findings findings = judge(run_);
    for (const Finding& finding : findings.all()) {
      if (finding.level == Level::kOk) continue;
      EXPECT_FALSE(finding.text.empty() || finding.cost.empty() || finding.remedy.empty())
          << finding.name;
      names.insert(finding.name);
    }
    return names;
  }
  Level level_of(const std::string& name) const {
    const Findings findings = judge(run_);
    const auto found = std::ranges::find(findings.all(), name, &Finding::name);
    return found == findings.all().end() ? Level::kOk : found->level;
  }

  RunFacts run_;
};

using Names = std::set<std::string>;

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

TEST_F(Doctor, FindsRanksThatDoNotMeet) {
  run_.ranks.resize(1);
  run_.pairs.clear();
  rank(0).cpus.allowed = {0};  // the others' CPUs are unknown
  rank(0).start.why_apart = "srun started 2 tasks that MPI does not see as one run";
  EXPECT_EQ(names(), Names({"start.apart"}));
  EXPECT_EQ(level_of("start.apart"), Level::kError);
  rank(0).start.why_apart.clear();
  rank(0).cpus.allowed = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  rank(0).start.slurm_tasks = 8;
  EXPECT_EQ(names(), Names({"start.one_of_allocation"}));
}

TEST_F(Doctor, FindsMpiLibrariesThatDiffer) {
  rank(2).start.library = rank(3).start.library = "Open MPI v5.0.3";
  EXPECT_EQ(names(), Names({"start.libraries"}));
}

TEST_F(Doctor, FindsTheWrongInterface) {
  NetworkFacts& network = rank(0).network;
  network.interfaces.push_back(ethernet("docker0", "172.17.0.1", 0));
  EXPECT_EQ(names(), Names()) << "it is not used";
  network.used = "docker0";
  network.used_address = "172.17.0.1";
  EXPECT_TRUE(names().contains("network.bridge"));
  network.used = "eth0";
  network.interfaces.back() = ethernet("eth1", "10.1.0.1", 100'000);
  EXPECT_EQ(names(), Names({"network.slower"}));
  network.interfaces.pop_back();
  network.interfaces.pop_back();
  EXPECT_TRUE(names().contains("network.loopback"));
  EXPECT_EQ(level_of("network.loopback"), Level::kError);
}

TEST_F(Doctor, FindsVariablesThatNameNoInterface) {
  rank(0).start.mpi_networks = "10.0.0.0/24";
  rank(0).start.nccl_networks = "eth";
  EXPECT_EQ(names(), Names()) << "a network, and the beginning of a name";
  rank(0).start.mpi_networks = "eth9";
  EXPECT_EQ(names(), Names({"network.variable"}));
  rank(0).start.mpi_networks = "";
  rank(0).start.nccl_networks = "=eth";
  EXPECT_EQ(names(), Names({"network.variable"}));
  rank(0).start.nccl_networks = "^docker0";
  EXPECT_EQ(names(), Names());
}

TEST_F(Doctor, FindsNetworksThatDifferOrLosePackets) {
  rank(2).network.interfaces[1].mtu = 9000;
  EXPECT_EQ(names(), Names({"network.mtu"}));
  rank(2).network.interfaces[1].mtu = 1500;
  rank(2).network.interfaces[1].speed_mbit = 1000;
  run_.pairs[0].gbit = 0.94;
  EXPECT_EQ(names(), Names({"network.speeds"}));
  rank(2).network.interfaces[1].speed_mbit = 10000;
  run_.pairs[0].gbit = 9.4;
  rank(2).network.interfaces[1].errors = 1'000'000;
  EXPECT_EQ(names(), Names({"network.errors"}));
}

TEST_F(Doctor, FindsAPairOfHostsThatIsSlow) {
  run_.pairs[0].gbit = 0.94;
  EXPECT_EQ(names(), Names({"pairs.slow"}));
  for (RankFacts& rank : run_.ranks) rank.network.interfaces[1].speed_mbit = 0;
  EXPECT_EQ(names(), Names()) << "no link that promises more";
  run_.pairs.push_back({"node1", "node2", 9.4, 0.05});
  run_.pairs.push_back({"node1", "node2", 9.4, 0.05});
  EXPECT_EQ(names(), Names({"pairs.slower_than_others"}));
  EXPECT_EQ(judge(run_).count(Level::kWarning), 1);
  run_.pairs[0].gbit = 9.4;
  run_.pairs[0].round_trip_ms = 20;
  EXPECT_EQ(names(), Names({"pairs.late"}));
}

TEST_F(Doctor, FindsFastNetworksThatAreDownOrUnused) {
  give_infiniband();
  for (RankFacts& rank : run_.ranks)
    rank.network.rdma.push_back({"mlx5_0", 2, "InfiniBand", "DOWN", 10});
  EXPECT_EQ(names(), Names()) << "a second port without a cable";
  rank(2).network.rdma[0].state = rank(3).network.rdma[0].state = "DOWN";
  EXPECT_EQ(names(), Names({"network.rdma_port", "network.rdma_differs"}));
  give_infiniband();
  run_.pairs[0].gbit = 9;
  EXPECT_EQ(names(), Names({"pairs.slow"}));
  run_.transport = "tcp";
  for (RankFacts& rank : run_.ranks) rank.start.mpi_network = "tcp";
  EXPECT_EQ(names(), Names({"network.rdma_unused"}));
  give_infiniband();
  give_gpus();
  for (RankFacts& rank : run_.ranks) rank.start.nccl_ib_disabled = true;
  EXPECT_EQ(names(), Names({"network.nccl_rdma"}));
}

TEST_F(Doctor, FindsFewPorts) {
  rank(0).network.last_port = rank(0).network.first_port + 50;
  EXPECT_EQ(names(), Names({"network.ports"}));
}

TEST_F(Doctor, FindsPortsThatOnlyMpiReaches) {
  run_.transport = "mpi";
  EXPECT_EQ(names(), Names({"network.transport"}));
}

TEST_F(Doctor, FindsClocksThatDiffer) {
  rank(2).clock_ahead_s = 30;
  rank(2).clock_within_s = 0.001;
  EXPECT_EQ(names(), Names({"clocks.differ"}));
  rank(2).clock_within_s = 40;  // a network too slow to measure it
  EXPECT_EQ(names(), Names());
}

TEST_F(Doctor, FindsGpusThatAreSick) {
  give_gpus();
  gpus().gpus[1].uncorrected_errors = 1;
  EXPECT_EQ(names(), Names({"gpus.ecc"}));
  EXPECT_EQ(level_of("gpus.ecc"), Level::kError);
  gpus().gpus[1] = gpu(2);
  gpus().gpus[1].corrected_errors = 1e6;
  EXPECT_EQ(names(), Names({"gpus.ecc_corrected"}));
  gpus().gpus[1] = gpu(2);
  gpus().gpus[1].slowdown = "thermal slowdown (hardware)";
  EXPECT_EQ(names(), Names({"gpus.throttled"}));
  gpus().gpus[1] = gpu(2);
  gpus().gpus[1].temperature_c = 95;
  EXPECT_EQ(names(), Names({"gpus.hot"}));
  gpus().gpus[1] = gpu(2);
  gpus().gpus[1].used_bytes = 3e10;
  EXPECT_EQ(names(), Names({"gpus.taken"}));
}

TEST_F(Doctor, FindsGpusThatDoNotReachEachOther) {
  give_gpus();
  GpuPair& pair = gpus().pairs[0];
  pair.failure = "the copy does not end within 2 s";
  EXPECT_EQ(names(), Names({"gpus.copy"}));
  EXPECT_EQ(level_of("gpus.copy"), Level::kError);
  pair.failure = "";
  pair.gbytes = 20;
  EXPECT_EQ(names(), Names({"gpus.slow_link"}));
  pair = {.from = 0, .to = 1, .gbytes = 10, .peer_access = false};
  EXPECT_EQ(names(), Names({"gpus.no_peer_access"}));
  gpus().gpus[0].name = "NVIDIA GeForce RTX 4090";
  EXPECT_FALSE(names().contains("gpus.no_peer_access")) << "these never can";
  gpus().gpus[0].name = gpu(1).name;
  pair.peer_access = true;
  gpus().pairs.push_back({.from = 0, .to = 2, .gbytes = 24});
  gpus().pairs.push_back({.from = 1, .to = 2, .gbytes = 24});
  EXPECT_EQ(names(), Names({"gpus.slower_than_others"}));
}

TEST_F(Doctor, FindsMissingAndDifferingLibrariesOfGpus) {
  give_gpus();
  gpus().nccl = "2.20.0";
  EXPECT_EQ(names(), Names({"gpus.versions"}));
  EXPECT_EQ(level_of("gpus.versions"), Level::kError);
  for (RankFacts& rank : run_.ranks) rank.gpus.nccl = rank.gpus.cudnn = "";
  EXPECT_EQ(names(), Names({"gpus.nccl", "gpus.cudnn"}));
}

TEST_F(Doctor, FindsGpusThatCannotBeUsedOrAreTooFew) {
  give_gpus();
  gpus().gpus.pop_back();
  gpus().pairs.clear();
  EXPECT_EQ(names(), Names({"gpus.few", "gpus.differ"}));
  rank(1).start.visible_gpus = "1";
  EXPECT_EQ(names(), Names({"gpus.differ"})) << "each rank may see another one";
  for (RankFacts& rank : run_.ranks)
    rank.gpus = {.why_none = "the driver did not answer within 7 s", .expected = true};
  EXPECT_EQ(names(), Names({"gpus.unusable"}));
  for (RankFacts& rank : run_.ranks)
    rank.gpus = {.why_none = "no NVIDIA driver is loaded", .in_machine = 8};
  EXPECT_EQ(names(), Names({"gpus.not_visible"}));
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
