// Catches: a fault of the start, a network or a GPU that `lockstep doctor` does not name.
#include "tests/unit/launcher/doctor_hosts.h"

namespace lockstep::doctor {
namespace {

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

}  // namespace
}  // namespace lockstep::doctor
