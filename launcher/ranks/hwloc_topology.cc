#include "launcher/ranks/hwloc_topology.h"

#include <cerrno>
#include <cstdlib>

#include "runtime/base/cpus.h"

namespace lockstep::launcher {
namespace {

// Selects the machine that load_hwloc_topology() loads. Returns 0, or -1 for an invalid text.
int select_machine(hwloc_topology_t topology, const std::string& machine) {
  if (machine.empty()) return 0;
  if (machine.front() == '<')
    return hwloc_topology_set_xmlbuffer(
        topology, machine.c_str(), static_cast<int>(machine.size()) + 1);
  return hwloc_topology_set_synthetic(topology, machine.c_str());
}

}  // namespace

HwlocTopology load_hwloc_topology(const std::string& machine) {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  HwlocTopology topology(made);
  if (select_machine(made, machine) != 0) return nullptr;
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

HwlocBitmap bitmap_of(const std::string& list) {
  HwlocBitmap bitmap(hwloc_bitmap_alloc());
  hwloc_bitmap_list_sscanf(bitmap.get(), list.c_str());
  return bitmap;
}

std::string list_of_allowed_cpus() {
  const HwlocBitmap bitmap(hwloc_bitmap_alloc());
  for (const int cpu : allowed_cpus()) hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(cpu));
  return list_of(bitmap.get());
}

int bind_process_to(const std::string& cpus) {
  const HwlocTopology topology = load_hwloc_topology("");
  // In the name of another machine, as HWLOC_SYNTHETIC may give, hwloc would do nothing.
  if (!topology || hwloc_topology_is_thissystem(topology.get()) == 0) return ENOSYS;
  const HwlocBitmap bitmap = bitmap_of(cpus);
  return hwloc_set_cpubind(topology.get(), bitmap.get(), HWLOC_CPUBIND_PROCESS) == 0 ? 0 : errno;
}

}  // namespace lockstep::launcher
