#pragma once
// NVIDIA's management library (NVML), as much of it as is used here. It is part of the driver and
// not of the toolkit, so it is loaded at run time, and its declarations are repeated here from the
// NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api).

#include <optional>
#include <string>

namespace lockstep::cuda {

// A function of the library. A library without it answers as NVML does: FUNCTION_NOT_FOUND.
template <typename... Arguments>
class NvmlFunction {
 public:
  void set(void* symbol) { function_ = reinterpret_cast<int (*)(Arguments...)>(symbol); }
  int operator()(Arguments... arguments) const {
    return function_ == nullptr ? 13 : function_(arguments...);
  }

 private:
  int (*function_)(Arguments...) = nullptr;
};

// Every call may take milliseconds, and hangs if the driver does: never make one on a thread that
// somebody waits for without a limit.
class Nvml {
 public:
  using Device = void*;    // nvmlDevice_t
  using EventSet = void*;  // nvmlEventSet_t
  using Number = unsigned long long;

  // nvmlReturn_t
  static constexpr int kSuccess = 0, kGpuIsLost = 15;
  // nvmlClockType_t, nvmlTemperatureSensors_t, nvmlMemoryErrorType_t, nvmlEccCounterType_t,
  // nvmlEventTypes
  static constexpr int kSmClock = 1, kMemoryClock = 2;
  static constexpr int kGpuSensor = 0;
  static constexpr int kCorrected = 0, kUncorrected = 1;
  static constexpr int kSinceDriverStart = 0;  // NVML_VOLATILE_ECC
  static constexpr Number kXidEvent = 8;
  // nvmlGpuP2PCapsIndex_t
  static constexpr int kReadsPeer = 0, kNvlinkPeer = 2;
  // nvmlIntNvLinkDeviceType_t
  static constexpr int kGpuAtEnd = 0, kSwitchAtEnd = 2;
  static constexpr unsigned kMaxLinks = 36;

  struct Memory {
    Number total, free, used;
  };
  struct MemoryWithReserved {
    unsigned version;
    Number total, reserved, free, used;
  };
  struct Utilization {
    unsigned gpu, memory;  // per cent
  };
  struct Event {
    Device device;
    Number type, data;
    unsigned gpu_instance, compute_instance;
  };
  struct PciInfo {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
  };

  // Loads the library, once in a process, and initialises it. Returns null if it or the driver is
  // missing; then `why_not` has the reason.
  static const Nvml* load(std::string& why_not);

  // The GPU at a PCI address, "0000:1b:00.0".
  std::optional<Device> find(const std::string& pci_bus_id) const;

  NvmlFunction<const char*, Device*> handle_by_pci_bus_id;
  NvmlFunction<char*, unsigned> driver_version;
  NvmlFunction<Device, int, unsigned*> clock_info, max_clock_info;  // MHz
  NvmlFunction<Device, unsigned*> power_usage;                      // mW
  NvmlFunction<Device, int, unsigned*> temperature;                 // degrees Celsius
  NvmlFunction<Device, Number*> clock_limits;  // ClocksEventReasons, once ClocksThrottleReasons
  NvmlFunction<Device, Utilization*> utilization;
  NvmlFunction<Device, int, int, Number*> ecc_errors;
  NvmlFunction<Device, Number*> energy;  // mJ since the driver was loaded
  NvmlFunction<Device, Memory*> memory_info;
  NvmlFunction<Device, MemoryWithReserved*> memory_info_with_reserved;
  NvmlFunction<EventSet*> create_event_set;
  NvmlFunction<Device, Number, EventSet> register_events;
  NvmlFunction<EventSet, Event*, unsigned> wait_for_event;
  NvmlFunction<Device, Device, int*> common_ancestor;
  NvmlFunction<Device, Device, int, int*> peer_status;
  NvmlFunction<Device, unsigned, int*> link_state;
  NvmlFunction<Device, unsigned, unsigned*> link_version;
  NvmlFunction<Device, unsigned, PciInfo*> link_remote_pci;
  NvmlFunction<Device, unsigned, int*> link_remote_type;
};

}  // namespace lockstep::cuda
