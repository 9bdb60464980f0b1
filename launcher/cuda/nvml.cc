#include "launcher/cuda/nvml.h"

#include <dlfcn.h>
#include <fmt/core.h>

namespace lockstep::cuda {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";

// Leaves `nvml` as it is if the library cannot be used; returns why.
std::string open(Nvml& nvml) {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fmt::format("{} is not found", kLibrary);
  const auto symbol = [&](const char* name) { return ::dlsym(library, name); };
  NvmlFunction<> initialize;
  initialize.set(symbol("nvmlInit_v2"));
  if (const int error = initialize(); error != Nvml::kSuccess)
    return fmt::format("{} cannot be initialised (error {})", kLibrary, error);
  nvml.handle_by_pci_bus_id.set(symbol("nvmlDeviceGetHandleByPciBusId_v2"));
  nvml.driver_version.set(symbol("nvmlSystemGetDriverVersion"));
  nvml.clock_info.set(symbol("nvmlDeviceGetClockInfo"));
  nvml.max_clock_info.set(symbol("nvmlDeviceGetMaxClockInfo"));
  nvml.power_usage.set(symbol("nvmlDeviceGetPowerUsage"));
  nvml.temperature.set(symbol("nvmlDeviceGetTemperature"));
  void* const limits = symbol("nvmlDeviceGetCurrentClocksEventReasons");
  nvml.clock_limits.set(limits != nullptr ? limits
                                          : symbol("nvmlDeviceGetCurrentClocksThrottleReasons"));
  nvml.utilization.set(symbol("nvmlDeviceGetUtilizationRates"));
  nvml.ecc_errors.set(symbol("nvmlDeviceGetTotalEccErrors"));
  nvml.energy.set(symbol("nvmlDeviceGetTotalEnergyConsumption"));
  nvml.memory_info.set(symbol("nvmlDeviceGetMemoryInfo"));
  nvml.memory_info_with_reserved.set(symbol("nvmlDeviceGetMemoryInfo_v2"));
  nvml.create_event_set.set(symbol("nvmlEventSetCreate"));
  nvml.register_events.set(symbol("nvmlDeviceRegisterEvents"));
  nvml.wait_for_event.set(symbol("nvmlEventSetWait_v2"));
  nvml.common_ancestor.set(symbol("nvmlDeviceGetTopologyCommonAncestor"));
  nvml.peer_status.set(symbol("nvmlDeviceGetP2PStatus"));
  nvml.link_state.set(symbol("nvmlDeviceGetNvLinkState"));
  nvml.link_version.set(symbol("nvmlDeviceGetNvLinkVersion"));
  nvml.link_remote_pci.set(symbol("nvmlDeviceGetNvLinkRemotePciInfo_v2"));
  nvml.link_remote_type.set(symbol("nvmlDeviceGetNvLinkRemoteDeviceType"));
  return "";
}

struct Loaded {
  Nvml nvml;
  std::string why_not = open(nvml);
};

}  // namespace

const Nvml* Nvml::load(std::string& why_not) {
  static const Loaded& loaded =
      *new Loaded;  // never destroyed: threads may call it to the very end
  why_not = loaded.why_not;
  return why_not.empty() ? &loaded.nvml : nullptr;
}

std::optional<Nvml::Device> Nvml::find(const std::string& pci_bus_id) const {
  Device device = nullptr;
  if (handle_by_pci_bus_id(pci_bus_id.c_str(), &device) != kSuccess) return std::nullopt;
  return device;
}

}  // namespace lockstep::cuda
