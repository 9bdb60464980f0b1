#include "launcher/ranks/cpu_domains.h"

#include <algorithm>
#include <cstring>

#include "launcher/ranks/hwloc_topology.h"

namespace lockstep::launcher {
namespace {

CpuDomain domain_of(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  CpuDomain domain{list_of(cpus), 0};
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)) != nullptr)
    domain.cores += hwloc_bitmap_intersects(core->cpuset, cpus);
  // Some virtual machines show no cores.
  if (domain.cores == 0) domain.cores = std::max(1, hwloc_bitmap_weight(cpus));
  return domain;
}

// The CPUs of each domain, and no CPU twice. hwloc gives memory without CPUs those that are next to
// it: the CPUs of another domain, or of several. So a node is no domain if its CPUs are those of an
// earlier one or include all of a smaller one.
std::vector<HwlocBitmap> cpus_of_domains(hwloc_topology_t topology, hwloc_const_cpuset_t allowed) {
  std::vector<hwloc_obj_t> nodes;
  hwloc_obj_t next = nullptr;
  while ((next = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, next)) != nullptr)
    if (!hwloc_bitmap_iszero(next->cpuset)) nodes.push_back(next);
  std::vector<HwlocBitmap> domains;
  for (size_t i = 0; i < nodes.size(); ++i) {
    bool distinct = true;
    for (size_t j = 0; j < nodes.size(); ++j) {
      const bool same = hwloc_bitmap_isequal(nodes[j]->cpuset, nodes[i]->cpuset) != 0;
      if (same ? j < i : hwloc_bitmap_isincluded(nodes[j]->cpuset, nodes[i]->cpuset) != 0)
        distinct = false;
    }
    HwlocBitmap cpus(hwloc_bitmap_alloc());
    hwloc_bitmap_and(cpus.get(), nodes[i]->cpuset, allowed);
    if (distinct && !hwloc_bitmap_iszero(cpus.get())) domains.push_back(std::move(cpus));
  }
  return domains;
}

}  // namespace

std::vector<CpuDomain> find_cpu_domains(const std::string& machine, const std::string& allowed) {
  const HwlocBitmap cpus = bitmap_of(allowed.empty() ? list_of_allowed_cpus() : allowed);
  const CpuDomain all{list_of(cpus.get()), std::max(1, hwloc_bitmap_weight(cpus.get()))};
  const HwlocTopology topology = load_hwloc_topology(machine);
  if (!topology) return {all};
  std::vector<CpuDomain> domains;
  const HwlocBitmap covered(hwloc_bitmap_alloc());
  for (const HwlocBitmap& domain : cpus_of_domains(topology.get(), cpus.get())) {
    hwloc_bitmap_or(covered.get(), covered.get(), domain.get());
    domains.push_back(domain_of(topology.get(), domain.get()));
  }
  if (domains.empty() || hwloc_bitmap_isequal(covered.get(), cpus.get()) == 0)
    return {domain_of(topology.get(), cpus.get())};
  return domains;
}

std::string bind_to_domain(const CpuDomain& domain) {
  const int error = bind_process_to(domain.cpus);
  return error == 0 ? "" : std::strerror(error);
}

}  // namespace lockstep::launcher
