#include <fmt/core.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

#include "launcher/ranks/gpu_binding.h"

namespace lockstep::launcher {
namespace {

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// Returns null if hwloc cannot load the topology.
Topology load(const std::string& xml) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  Topology topology(made);
  if (!xml.empty() &&
      hwloc_topology_set_xmlbuffer(made, xml.c_str(), static_cast<int>(xml.size()) + 1) != 0)
    return nullptr;
  // Linux itself reports the location of PCI devices. These plugins would query it again: slowly,
  // by starting the GPU's libraries, or, in pci's case, with a leak.
  for (const char* plugin : {"pci", "opencl", "cuda", "nvml", "rsmi", "levelzero", "gl"})
    hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  hwloc_topology_set_io_types_filter(made, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  return hwloc_topology_load(made) == 0 ? std::move(topology) : nullptr;
}

std::string list_of(hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  hwloc_bitmap_list_asprintf(&text, bitmap);
  std::string list = text == nullptr ? "" : text;
  std::free(text);
  return list;
}

Bitmap bitmap_of(const std::string& list) {
  Bitmap bitmap(hwloc_bitmap_alloc());
  hwloc_bitmap_list_sscanf(bitmap.get(), list.c_str());
  return bitmap;
}

std::string allowed_cpus() {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return "";
  const Bitmap bitmap(hwloc_bitmap_alloc());
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &cpus)) hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(cpu));
  }
  return list_of(bitmap.get());
}

// Launchers that bind ranks even if nobody asks for it. The first whose variable is set has started
// this process.
struct Launcher {
  const char* sets;         // in every process that it starts (Open MPI 4: that it binds)
  const char* if_asked[4];  // what it also sets, or passes on, if somebody asked for a binding
};
constexpr Launcher kLaunchers[] = {
    // Open MPI 4
    {"OMPI_MCA_orte_bound_at_launch",
     {"OMPI_MCA_hwloc_base_binding_policy", "OMPI_MCA_rmaps_base_mapping_policy"}},
    // Open MPI 5 (PRRTE): a process cannot see --bind-to, so whoever wants to keep such a binding
    // passes on (-x) a variable of Open MPI 4 or of PRRTE.
    {"PRTE_LAUNCHED",
     {"OMPI_MCA_hwloc_base_binding_policy",
      "OMPI_MCA_rmaps_base_mapping_policy",
      "PRTE_MCA_hwloc_default_binding_policy",
      "PRTE_MCA_rmaps_default_mapping_policy"}},
    // Intel MPI
    {"I_MPI_PIN_MAPPING",
     {"I_MPI_PIN", "I_MPI_PIN_DOMAIN", "I_MPI_PIN_PROCESSOR_LIST", "I_MPI_PIN_CELL"}}};

}  // namespace

GpuBinding plan_gpu_binding(const std::string& pci_bus_id,
                            const std::string& machine_xml,
                            const std::string& bound_to,
                            bool asked_for) {
  std::string all;  // CPUs that replace a binding that nobody asked for
  const auto nothing = [&](const std::string& why) {
    return GpuBinding{all, "threads are not bound to the GPU's cores: " + why};
  };
  const Topology topology = load(machine_xml);
  if (!topology) return nothing("the machine's topology is not readable");
  hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology.get());
  if (!hwloc_bitmap_isincluded(allowed, bitmap_of(bound_to).get())) {
    if (asked_for) return nothing("they are bound to CPUs " + bound_to + " already");
    all = list_of(allowed);
  }
  hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology.get(), pci_bus_id.c_str());
  if (device == nullptr) return nothing("this machine shows no such PCI device");
  hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(topology.get(), device);
  const Bitmap near(hwloc_bitmap_alloc());
  if (ancestor != nullptr) hwloc_bitmap_and(near.get(), ancestor->cpuset, allowed);
  if (hwloc_bitmap_iszero(near.get())) return nothing("no CPU is next to it");
  if (hwloc_bitmap_isincluded(allowed, near.get()))
    return nothing("all CPUs are equally near to it");
  const std::string cpus = list_of(near.get());
  return {cpus, fmt::format("threads are bound to CPUs {}, next to the GPU", cpus)};
}

bool binding_asked_for() {
  const auto is_set = [](const char* name) { return std::getenv(name) != nullptr; };
  for (const Launcher& launcher : kLaunchers) {
    if (is_set(launcher.sets))
      return std::any_of(std::begin(launcher.if_asked),
                         std::end(launcher.if_asked),
                         [&](auto name) { return name != nullptr && is_set(name); });
  }
  return true;
}

std::string bind_to_gpu(const std::string& pci_bus_id) {
  const GpuBinding binding = plan_gpu_binding(pci_bus_id, "", allowed_cpus(), binding_asked_for());
  if (binding.cpus.empty()) return binding.text;
  const Topology topology = load("");
  const Bitmap cpus = bitmap_of(binding.cpus);
  if (topology && hwloc_set_cpubind(topology.get(), cpus.get(), HWLOC_CPUBIND_PROCESS) == 0)
    return binding.text;
  return fmt::format(
      "threads are not bound to CPUs {}, next to the GPU: {}", binding.cpus, std::strerror(errno));
}

}  // namespace lockstep::launcher
