#pragma once
// hwloc's types as C++ objects; for builds that have hwloc.

#include <hwloc.h>

#include <memory>
#include <string>

namespace lockstep::launcher {

struct DestroyHwlocTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, DestroyHwlocTopology>;

struct FreeHwlocBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using HwlocBitmap = std::unique_ptr<hwloc_bitmap_s, FreeHwlocBitmap>;

// Loads a machine: this one if the text is empty, one in hwloc's XML, or a synthetic one
// ("pack:2 numa:2 core:16 pu:2"). Returns null if hwloc cannot load it.
HwlocTopology load_hwloc_topology(const std::string& machine);

// Lists of CPUs: "0-15,32-47".
std::string list_of(hwloc_const_bitmap_t bitmap);
HwlocBitmap bitmap_of(const std::string& list);

// The CPUs that this process may use.
std::string list_of_allowed_cpus();

// Binds all threads of this process, present and future. Returns an error number, or 0.
int bind_process_to(const std::string& cpus);

}  // namespace lockstep::launcher
