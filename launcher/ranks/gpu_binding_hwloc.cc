#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "launcher/ranks/gpu_binding.h"
#include "launcher/ranks/hwloc_topology.h"

namespace lockstep::launcher {
namespace {

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
  const HwlocTopology topology = load_hwloc_topology(machine_xml);
  if (!topology) return nothing("the machine's topology is not readable");
  hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology.get());
  if (!hwloc_bitmap_isincluded(allowed, bitmap_of(bound_to).get())) {
    if (asked_for) return nothing("they are bound to CPUs " + bound_to + " already");
    all = list_of(allowed);
  }
  hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology.get(), pci_bus_id.c_str());
  if (device == nullptr) return nothing("this machine shows no such PCI device");
  hwloc_obj_t ancestor = hwloc_get_non_io_ancestor_obj(topology.get(), device);
  const HwlocBitmap near(hwloc_bitmap_alloc());
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
  const GpuBinding binding =
      plan_gpu_binding(pci_bus_id, "", list_of_allowed_cpus(), binding_asked_for());
  if (binding.cpus.empty()) return binding.text;
  const int error = bind_process_to(binding.cpus);
  if (error == 0) return binding.text;
  return fmt::format(
      "threads are not bound to CPUs {}, next to the GPU: {}", binding.cpus, std::strerror(error));
}

}  // namespace lockstep::launcher
