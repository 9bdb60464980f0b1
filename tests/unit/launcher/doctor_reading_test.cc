// Catches: files of /proc, /sys and control groups that `lockstep doctor` misreads, and a run
// folder that it leaves behind or does not try.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "launcher/doctor/read_gpus.h"
#include "launcher/doctor/read_host.h"
#include "launcher/doctor/read_network.h"
#include "tests/reference/temporary_folder.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

class Reading : public ::testing::Test {
 protected:
  void plant(const std::string& path, const std::string& text) {
    fs::create_directories((root() / path).parent_path());
    std::ofstream(root() / path) << text;
  }
  void plant_group(const std::string& file, const std::string& text) {
    plant("proc/self/cgroup", "0::/pod\n");
    plant("proc/self/mountinfo", "31 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    plant("sys/fs/cgroup/pod/" + file, text);
  }
  void plant_interface(const std::string& name, const std::string& type, const std::string& state) {
    const std::string folder = "sys/class/net/" + name + "/";
    plant(folder + "type", type);
    plant(folder + "operstate", state);
    plant(folder + "mtu", "9000\n");
    plant(folder + "speed", "25000\n");
    plant(folder + "statistics/rx_packets", "700\n");
    plant(folder + "statistics/tx_packets", "300\n");
    plant(folder + "statistics/rx_errors", "2\n");
    plant(folder + "statistics/tx_errors", "1\n");
  }
  const fs::path& root() const { return dir_.path(); }
  testing::TemporaryFolder dir_;
};

TEST_F(Reading, CpusOfTheControlGroup) {
  plant("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU\nflags\t\t: fpu amx_bf16 avx2\n");
  plant("sys/devices/system/cpu/online", "0-4095,8000\n");
  CpuFacts cpus = read_cpus(root());
  EXPECT_EQ(cpus.of_host, 4097);
  EXPECT_EQ(cpus.model, "Some CPU");
  EXPECT_TRUE(cpus.has_amx);
  EXPECT_EQ(cpus.quota, 0);
  EXPECT_FALSE(cpus.hyperthreads);
  plant("sys/devices/system/cpu/smt/active", "1\n");
  EXPECT_TRUE(read_cpus(root()).hyperthreads);
  plant_group("cpuset.cpus.effective", "0-1999\n");
  plant_group("cpu.max", "150000 100000\n");
  plant_group("cpu.stat", "usage_usec 9\nnr_periods 200\nnr_throttled 50\n");
  cpus = read_cpus(root());
  EXPECT_EQ(cpus.of_host, 2000);
  EXPECT_EQ(cpus.quota, 1.5);
  EXPECT_EQ(cpus.throttled, 0.25);
  plant_group("cpu.stat", "nr_periods 20\nnr_throttled 20\n");
  EXPECT_EQ(read_cpus(root()).throttled, 0) << "too few periods";
}

TEST_F(Reading, MemoryOfTheControlGroup) {
  plant("proc/meminfo", "MemTotal: 1000000 kB\nMemFree: 1 kB\nMemAvailable: 600000 kB\n");
  plant("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  MemoryFacts memory = read_memory(root());
  EXPECT_EQ(memory.total_bytes, 1000000 * 1024);
  EXPECT_EQ(memory.available_bytes, 600000 * 1024);
  EXPECT_EQ(memory.group_bytes, kUnlimited);
  EXPECT_EQ(memory.huge_pages, "never");
  EXPECT_EQ(memory.shm_bytes, -1) << "no /dev/shm";
  plant_group("memory.max", "4096000\n");
  plant_group("memory.current", "96000\n");
  fs::create_directories(root() / "dev/shm");
  memory = read_memory(root());
  EXPECT_EQ(memory.group_bytes, 4096000);
  EXPECT_EQ(memory.available_bytes, 4000000);
  EXPECT_GT(memory.shm_bytes, 0);
}

TEST_F(Reading, ProcessesOfTheControlGroup) {
  plant_group("pids.max", "max\n");
  plant_group("pids.current", "5\n");
  EXPECT_EQ(read_limits(root()).pids_left, kUnlimited);
  plant_group("pids.max", "100\n");
  EXPECT_EQ(read_limits(root()).pids_left, 95);
}

TEST_F(Reading, InterfacesThatAreUp) {
  plant_interface("eth0", "1\n", "up\n");
  fs::create_directories(root() / "sys/class/net/eth0/device");
  plant_interface("eth1", "1\n", "down\n");
  plant_interface("ib0", "32\n", "up\n");
  plant_interface("lo", "772\n", "unknown\n");
  plant_interface("veth7", "1\n", "up\n");
  plant_interface("virbr0", "1\n", "up\n");
  fs::create_directories(root() / "sys/class/net/virbr0/bridge");
  std::string found;
  const NetworkFacts network = read_interfaces(root());
  for (const InterfaceFacts& interface : network.interfaces)
    found += interface.name + " " + interface.kind + ", ";
  EXPECT_EQ(found, "eth0 ethernet, ib0 infiniband, lo loopback, veth7 virtual, virbr0 bridge, ");
  const InterfaceFacts& first = network.interfaces.front();
  EXPECT_EQ(first.speed_mbit, 25000);
  EXPECT_EQ(first.mtu, 9000);
  EXPECT_EQ(first.packets, 1000);
  EXPECT_EQ(first.errors, 3);
}

TEST_F(Reading, PortsOfConnections) {
  plant("proc/sys/net/ipv4/ip_local_port_range", "32768\t60999\n");
  EXPECT_EQ(read_interfaces(root()).first_port, 32768);
  EXPECT_EQ(read_interfaces(root()).last_port, 60999);
}

TEST_F(Reading, PortsOfRdma) {
  const std::string mlx = "sys/class/infiniband/mlx5_0/ports/1/";
  plant(mlx + "state", "4: ACTIVE\n");
  plant(mlx + "rate", "200 Gb/sec (4X HDR)\n");
  plant(mlx + "link_layer", "InfiniBand\n");
  const std::string efa = "sys/class/infiniband/rdmap0s31/";
  plant(efa + "ports/1/state", "1: DOWN\n");
  fs::create_directories(root() / efa / "device");
  fs::create_symlink("../../drivers/efa", root() / efa / "device/driver");
  const NetworkFacts network = read_interfaces(root());
  ASSERT_EQ(network.rdma.size(), 2u);
  EXPECT_EQ(network.rdma[0].device, "mlx5_0");
  EXPECT_EQ(network.rdma[0].kind, "InfiniBand");
  EXPECT_EQ(network.rdma[0].state, "ACTIVE");
  EXPECT_EQ(network.rdma[0].gbit, 200);
  EXPECT_EQ(network.rdma[1].kind, "EFA");
  EXPECT_EQ(network.rdma[1].state, "DOWN");
}

TEST_F(Reading, GpusOnTheBus) {
  const auto plant_device =
      [&](const std::string& name, const std::string& vendor, const std::string& kind) {
        plant("sys/bus/pci/devices/" + name + "/vendor", vendor);
        plant("sys/bus/pci/devices/" + name + "/class", kind);
      };
  EXPECT_EQ(count_gpus_on_bus(root()), 0);
  plant_device("0000:01:00.0", "0x10de\n", "0x030200\n");
  plant_device("0000:01:00.1", "0x10de\n", "0x040300\n");  // its sound
  plant_device("0000:02:00.0", "0x1002\n", "0x030000\n");  // of AMD
  plant_device("0000:03:00.0", "0x10de\n", "0x030000\n");
  EXPECT_EQ(count_gpus_on_bus(root()), 2);
}

TEST_F(Reading, ARunFolderThatIsMadeAndRemovedAgain) {
  const DiskFacts disk = read_disk(root() / "a/b/runs", 20);
  EXPECT_EQ(disk.failure, "");
  EXPECT_FALSE(disk.type.empty());
  EXPECT_GT(disk.free_bytes, 0);
  EXPECT_GT(disk.sync_ms, 0);
  EXPECT_FALSE(fs::exists(root() / "a"));
  plant("runs/kept", "x");
  EXPECT_EQ(read_disk(root() / "runs", 20).failure, "");
  EXPECT_TRUE(fs::exists(root() / "runs/kept"));
  EXPECT_EQ(std::distance(fs::directory_iterator(root() / "runs"), fs::directory_iterator()), 1);
}

TEST_F(Reading, ARunFolderThatIsAFile) {
  plant("runs", "x");
  EXPECT_NE(read_disk(root() / "runs", 20).failure, "");
  EXPECT_NE(read_disk(root() / "runs/below", 20).failure, "");
}

}  // namespace
}  // namespace lockstep::doctor
