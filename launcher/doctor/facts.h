#pragma once
// What `lockstep doctor` reads on a host: plain data, which the ranks gather as JSON.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::doctor {

inline constexpr int64_t kUnlimited = -1;

struct CpuFacts {
  std::vector<int> allowed = {};  // CPUs that this rank may run on
  int of_host = 0;                // CPUs that processes of this host, or container, may run on
  bool hyperthreads = false;      // two CPUs are one core
  std::string model = {};
  int domains = 1;               // NUMA domains in which the rank may run
  double quota = 0;              // CPUs, the smallest of the control groups; 0: none
  std::string quota_group = {};  // the one that sets it, as CpuQuota::group
  double throttled = 0;  // share of the group's periods in which it had to wait for its quota
  int omp_num_threads = 0, slurm_cpus_per_task = 0;  // the variables; 0: not set
  std::string simd = {},
              best_simd = {};  // the vector units in use, and those that the processor has
  bool has_amx = false;        // the processor has AMX with BF16, whether usable or not

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("allowed", self.allowed);
    visit("of_host", self.of_host);
    visit("hyperthreads", self.hyperthreads);
    visit("model", self.model);
    visit("domains", self.domains);
    visit("quota", self.quota);
    visit("quota_group", self.quota_group);
    visit("throttled", self.throttled);
    visit("omp_num_threads", self.omp_num_threads);
    visit("slurm_cpus_per_task", self.slurm_cpus_per_task);
    visit("simd", self.simd);
    visit("best_simd", self.best_simd);
    visit("has_amx", self.has_amx);
  }
};

struct MemoryFacts {
  int64_t total_bytes = 0, available_bytes = 0;
  int64_t group_bytes = kUnlimited;             // limit of the control group
  std::string huge_pages = {};                  // "always", "madvise", "never"; empty: unknown
  int64_t shm_bytes = -1, shm_free_bytes = -1;  // of /dev/shm; -1: there is none

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("total_bytes", self.total_bytes);
    visit("available_bytes", self.available_bytes);
    visit("group_bytes", self.group_bytes);
    visit("huge_pages", self.huge_pages);
    visit("shm_bytes", self.shm_bytes);
    visit("shm_free_bytes", self.shm_free_bytes);
  }
};

// As `ulimit` shows them, and the control group's limit of processes.
struct LimitFacts {
  int64_t memlock_bytes = kUnlimited, nofile = kUnlimited, nproc = kUnlimited;
  int64_t file_bytes = kUnlimited, address_space_bytes = kUnlimited;
  int64_t pids_left = kUnlimited;  // processes and threads that the group may still start

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("memlock_bytes", self.memlock_bytes);
    visit("nofile", self.nofile);
    visit("nproc", self.nproc);
    visit("file_bytes", self.file_bytes);
    visit("address_space_bytes", self.address_space_bytes);
    visit("pids_left", self.pids_left);
  }
};

// How this process was started, and what its environment says about networks.
struct StartFacts {
  std::string launcher = {};     // "mpirun", "srun", "torchrun", "no launcher"
  std::string library = {};      // Session::library()
  std::string mpi_network = {};  // "tcp", "fast", "" if unknown
  std::string why_apart = {};    // the error by which the ranks did not find each other
  int slurm_tasks = 0;           // of the allocation; 0: none
  std::string mpi_networks = {},
              nccl_networks = {};  // OMPI_MCA_btl_tcp_if_include, NCCL_SOCKET_IFNAME
  bool nccl_ib_disabled = false;
  std::string visible_gpus = {};  // CUDA_VISIBLE_DEVICES

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("launcher", self.launcher);
    visit("library", self.library);
    visit("mpi_network", self.mpi_network);
    visit("why_apart", self.why_apart);
    visit("slurm_tasks", self.slurm_tasks);
    visit("mpi_networks", self.mpi_networks);
    visit("nccl_networks", self.nccl_networks);
    visit("nccl_ib_disabled", self.nccl_ib_disabled);
    visit("visible_gpus", self.visible_gpus);
  }
};

// A network interface that is up.
struct InterfaceFacts {
  std::string name = {};
  std::string kind = {};  // "loopback", "bridge", "virtual", "wireless", "ethernet", "infiniband"
  std::vector<std::string> addresses = {};
  int64_t speed_mbit = 0;  // 0: it does not report one
  int64_t mtu = 0;
  int64_t packets = 0, errors = 0;

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("name", self.name);
    visit("kind", self.kind);
    visit("addresses", self.addresses);
    visit("speed_mbit", self.speed_mbit);
    visit("mtu", self.mtu);
    visit("packets", self.packets);
    visit("errors", self.errors);
  }
};

// A port of /sys/class/infiniband: InfiniBand, RoCE or EFA.
struct RdmaPort {
  std::string device = {};  // "mlx5_0"
  int port = 1;
  std::string kind = {};   // "InfiniBand", "RoCE", "EFA"
  std::string state = {};  // "ACTIVE"
  double gbit = 0;         // 0: unknown

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("device", self.device);
    visit("port", self.port);
    visit("kind", self.kind);
    visit("state", self.state);
    visit("gbit", self.gbit);
  }
};

struct NetworkFacts {
  std::vector<InterfaceFacts> interfaces = {};
  std::vector<RdmaPort> rdma = {};
  int first_port = 0, last_port = 0;  // of connections for which nobody chooses a port; 0: unknown
  // The interface and address that other ranks try first, and why.
  std::string used = {}, used_address = {}, used_why = {};

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("interfaces", self.interfaces);
    visit("rdma", self.rdma);
    visit("first_port", self.first_port);
    visit("last_port", self.last_port);
    visit("used", self.used);
    visit("used_address", self.used_address);
    visit("used_why", self.used_why);
  }
};

// The file system of the run folder, as rank 0 sees it.
struct DiskFacts {
  std::string path = {}, type = {};          // "ext4"
  int64_t free_bytes = -1, free_files = -1;  // -1: unknown
  double sync_ms = 0,
         rename_ms = 0;      // to write and sync a small file; to rename it and sync the folder
  std::string failure = {};  // an error, or that it did not answer

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("path", self.path);
    visit("type", self.type);
    visit("free_bytes", self.free_bytes);
    visit("free_files", self.free_files);
    visit("sync_ms", self.sync_ms);
    visit("rename_ms", self.rename_ms);
    visit("failure", self.failure);
  }
};

struct GpuFacts {
  std::string name = {}, pci_bus_id = {};
  int64_t memory_bytes = 0;
  // As exec::DeviceState; negative: unknown. Errors since the driver was loaded.
  double used_bytes = -1, temperature_c = -1, corrected_errors = -1, uncorrected_errors = -1;
  std::string slowdown = {};  // what limits the clock though it should not; empty: nothing

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("name", self.name);
    visit("pci_bus_id", self.pci_bus_id);
    visit("memory_bytes", self.memory_bytes);
    visit("used_bytes", self.used_bytes);
    visit("temperature_c", self.temperature_c);
    visit("corrected_errors", self.corrected_errors);
    visit("uncorrected_errors", self.uncorrected_errors);
    visit("slowdown", self.slowdown);
  }
};

// Two GPUs of a host.
struct GpuPair {
  int from = 0, to = 0;      // in GpusFacts::gpus
  double gbytes = 0;         // GB/s measured; 0: not measured
  double should_gbytes = 0;  // what NVLinks between them carry; 0: unknown
  bool peer_access = true;
  std::string failure = {};

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("from", self.from);
    visit("to", self.to);
    visit("gbytes", self.gbytes);
    visit("should_gbytes", self.should_gbytes);
    visit("peer_access", self.peer_access);
    visit("failure", self.failure);
  }
};

// The GPUs of a host, as its first rank sees them.
struct GpusFacts {
  std::vector<GpuFacts> gpus = {};
  std::vector<GpuPair> pairs = {};
  std::string why_none = {};  // there are none, or they cannot be used
  int in_machine = 0;         // NVIDIA's GPUs on the PCI bus, whether or not they can be used
  bool expected = false;      // the driver has GPUs, so that there should be some
  std::string driver = {}, runtime = {}, cudnn = {}, nccl = {};  // versions; empty: missing

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("gpus", self.gpus);
    visit("pairs", self.pairs);
    visit("why_none", self.why_none);
    visit("in_machine", self.in_machine);
    visit("expected", self.expected);
    visit("driver", self.driver);
    visit("runtime", self.runtime);
    visit("cudnn", self.cudnn);
    visit("nccl", self.nccl);
  }
};

// What one rank reads. GPUs are read by the first rank of a host, the run folder by rank 0.
struct RankFacts {
  std::string host = {}, machine = {};  // host_name(), host_identity()
  int local_rank = 0, local_ranks = 1;
  CpuFacts cpus;
  MemoryFacts memory;
  LimitFacts limits;
  StartFacts start;
  NetworkFacts network;
  DiskFacts disk;
  GpusFacts gpus;
  double clock_ahead_s = 0, clock_within_s = 0;  // of rank 0's clock, and the max error of that

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("host", self.host);
    visit("machine", self.machine);
    visit("local_rank", self.local_rank);
    visit("local_ranks", self.local_ranks);
    visit("cpus", self.cpus);
    visit("memory", self.memory);
    visit("limits", self.limits);
    visit("start", self.start);
    visit("network", self.network);
    visit("disk", self.disk);
    visit("gpus", self.gpus);
    visit("clock_ahead_s", self.clock_ahead_s);
    visit("clock_within_s", self.clock_within_s);
  }
};

// The exchange between the first ranks of two hosts.
struct HostPair {
  std::string a = {}, b = {};
  double gbit = 0;           // what each sent while it received as much
  double round_trip_ms = 0;  // of a small message

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("a", self.a);
    visit("b", self.b);
    visit("gbit", self.gbit);
    visit("round_trip_ms", self.round_trip_ms);
  }
};

// All that is judged.
struct RunFacts {
  std::vector<RankFacts> ranks = {};
  std::vector<HostPair> pairs = {};
  std::string transport = {};  // of messages between hosts: "tcp", "mpi"; empty for one rank

  template <typename Self, typename Visit>
  static void for_fields(Self& self, Visit visit) {
    visit("ranks", self.ranks);
    visit("pairs", self.pairs);
    visit("transport", self.transport);
  }
};

}  // namespace lockstep::doctor
