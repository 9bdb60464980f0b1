// Used in builds without hwloc.
#include "launcher/ranks/gpu_binding.h"

namespace lockstep::launcher {

GpuBinding plan_gpu_binding(const std::string&, const std::string&, const std::string&, bool) {
  return {"", "threads are not bound to the GPU's cores: built without hwloc"};
}

bool binding_asked_for() { return true; }

std::string bind_to_gpu(const std::string& pci_bus_id) {
  return plan_gpu_binding(pci_bus_id, "", "").text;
}

}  // namespace lockstep::launcher
