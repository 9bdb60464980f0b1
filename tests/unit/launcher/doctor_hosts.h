#pragma once
// The facts of sound hosts, in which tests plant faults.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "launcher/doctor/judge.h"

namespace lockstep::doctor {

inline constexpr int64_t kGiB = int64_t{1} << 30;

inline InterfaceFacts ethernet(const std::string& name, const std::string& address, int64_t mbit) {
  return {.name = name,
          .kind = "ethernet",
          .addresses = {address},
          .speed_mbit = mbit,
          .mtu = 1500,
          .packets = 1'000'000'000,
          .errors = 3};
}

inline GpuFacts gpu(int number) {
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

}  // namespace lockstep::doctor
