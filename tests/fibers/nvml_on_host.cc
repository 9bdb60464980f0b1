// Stands in for NVML (libnvidia-ml.so.1), as much of it as launcher/cuda calls. GPU i is the one of
// runtime_on_host.cc, at 0000:<i + 1>:00.0. What it reports is set by the environment; a list has
// the values of one reading after the other, and the last one stays:
//   FAKE_NVML_CLOCK, _MAX_CLOCK, _MEMORY_CLOCK (MHz), _POWER (mW), _TEMPERATURE, _LIMITS (bits),
//   _UTILIZATION (%), _CORRECTED, _UNCORRECTED (ECC errors), _USED (bytes), _ENERGY (mJ, or "+N": N
//   more at each reading)
//   FAKE_NVML_DRIVER    the driver's version
//   FAKE_NVML_XIDS      Xids that are reported once
//   FAKE_NVML_TOPOLOGY  switch (18 NVLinks of each GPU to a switch), bridges (4 between GPUs 0 and
//                       1, 2 and 3, ...), pcie (default; GPUs 0 and 1, ... share a switch)
//   FAKE_NVML_REFUSES   functions that return NOT_SUPPORTED; "all": every one
//   FAKE_NVML_LOST      the reading from which on each function returns GPU_IS_LOST
//   FAKE_NVML_HANGS     functions that never return
// NVML_OF_OLD_DRIVER leaves out what drivers of 2020 do not have.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Number = unsigned long long;

constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6, kTimeout = 10, kLost = 15;

std::string setting(const std::string& name) {
  const char* const text = std::getenv(("FAKE_NVML_" + name).c_str());
  return text == nullptr ? "" : text;
}

std::vector<std::string> list(const std::string& name) {
  std::vector<std::string> values;
  std::istringstream text(setting(name));
  for (std::string value; std::getline(text, value, ',');) values.push_back(value);
  return values;
}

bool names(const std::string& name, const std::string& function) {
  const std::vector<std::string> values = list(name);
  return std::find(values.begin(), values.end(), function) != values.end();
}

// What is returned before the function does anything else.
int begin(const char* function) {
  static std::atomic<long> calls = 0;
  while (names("HANGS", function)) ::pause();
  if (names("REFUSES", function) || setting("REFUSES") == "all") return kNotSupported;
  const std::string lost = setting("LOST");
  return !lost.empty() && ++calls > std::atol(lost.c_str()) ? kLost : kSuccess;
}

// The next value of a list.
Number next(const std::string& name, Number otherwise) {
  static std::map<std::string, size_t> taken;  // the monitor's thread alone reads
  const std::vector<std::string> values = list(name);
  if (values.empty()) return otherwise;
  const size_t index = std::min(taken[name]++, values.size() - 1);
  return std::strtoull(values[index].c_str(), nullptr, 10);
}

size_t index_of(void* device) { return reinterpret_cast<uintptr_t>(device) - 1; }

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct Event {
  void* device;
  Number type, data;
  unsigned gpu_instance, compute_instance;
};

void* registered = nullptr;  // the device whose events are wanted
size_t reported = 0;         // of FAKE_NVML_XIDS

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define BEGIN() \
  if (const int error = begin(__func__); error != kSuccess) return error

EXPORT int nvmlInit_v2() {
  BEGIN();
  return kSuccess;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  BEGIN();
  unsigned domain = 0, bus = 0;
  if (std::sscanf(bus_id, "%x:%x:", &domain, &bus) != 2 || bus == 0) return kNotFound;
  *device = reinterpret_cast<void*>(uintptr_t{bus});
  return kSuccess;
}
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  BEGIN();
  const std::string version = setting("DRIVER");
  std::snprintf(text, bytes, "%s", version.empty() ? "570.86.10" : version.c_str());
  return kSuccess;
}
EXPORT int nvmlDeviceGetClockInfo(void*, int type, unsigned* clock) {
  BEGIN();
  *clock = static_cast<unsigned>(type == 1 ? next("CLOCK", 1980) : next("MEMORY_CLOCK", 2619));
  return kSuccess;
}
EXPORT int nvmlDeviceGetMaxClockInfo(void*, int, unsigned* clock) {
  BEGIN();
  *clock = static_cast<unsigned>(next("MAX_CLOCK", 1980));
  return kSuccess;
}
EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* power) {
  BEGIN();
  *power = static_cast<unsigned>(next("POWER", 500'000));
  return kSuccess;
}
EXPORT int nvmlDeviceGetTemperature(void*, int sensor, unsigned* temperature) {
  BEGIN();
  if (sensor != 0) return kNotSupported;
  *temperature = static_cast<unsigned>(next("TEMPERATURE", 60));
  return kSuccess;
}
#ifdef NVML_OF_OLD_DRIVER
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void*, Number* limits) {
#else
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void*, Number* limits) {
#endif
  BEGIN();
  *limits = next("LIMITS", 0);
  return kSuccess;
}
EXPORT int nvmlDeviceGetUtilizationRates(void*, unsigned* per_cent) {
  BEGIN();
  per_cent[0] = static_cast<unsigned>(next("UTILIZATION", 100));
  per_cent[1] = 0;
  return kSuccess;
}
EXPORT int nvmlDeviceGetTotalEccErrors(void*, int type, int counter, Number* count) {
  BEGIN();
  if (counter != 0) return kNotSupported;
  *count = type == 0 ? next("CORRECTED", 0) : next("UNCORRECTED", 0);
  return kSuccess;
}
EXPORT int nvmlDeviceGetMemoryInfo(void*, Number* memory) {  // total, free, used
  BEGIN();
  memory[0] = Number{8} << 30;
  memory[2] = next("USED", Number{1} << 30);
  memory[1] = memory[0] - memory[2];
  return kSuccess;
}
#ifndef NVML_OF_OLD_DRIVER
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void*, Number* energy) {
  BEGIN();
  static Number sum = 0;
  const std::string more = setting("ENERGY");
  if (more.starts_with('+')) sum += std::strtoull(more.c_str() + 1, nullptr, 10);
  *energy = sum > 0 ? sum : next("ENERGY", 0);
  return kSuccess;
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void*, Number* memory) {  // version, total, reserved, ...
  BEGIN();
  if (static_cast<unsigned>(memory[0]) != (40 | 2u << 24)) return 25;
  memory[1] = Number{8} << 30;
  memory[2] = Number{1} << 28;
  memory[4] = next("USED", Number{1} << 30);
  memory[3] = memory[1] - memory[2] - memory[4];
  return kSuccess;
}
EXPORT int nvmlEventSetCreate(void** set) {
  BEGIN();
  *set = &registered;
  return kSuccess;
}
EXPORT int nvmlDeviceRegisterEvents(void* device, Number types, void* set) {
  BEGIN();
  if (set != &registered || types != 8) return kNotSupported;
  registered = device;
  return kSuccess;
}
EXPORT int nvmlEventSetWait_v2(void*, Event* event, unsigned timeout_ms) {
  BEGIN();
  const std::vector<std::string> xids = list("XIDS");
  if (timeout_ms > 0) ::usleep(timeout_ms * 1000);
  if (reported >= xids.size()) return kTimeout;
  *event = {registered, 8, std::strtoull(xids[reported++].c_str(), nullptr, 10), ~0u, ~0u};
  return kSuccess;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int* type) {
  BEGIN();
  *type = setting("TOPOLOGY") == "switch" ? 2 : 0;
  return kSuccess;
}
#endif
EXPORT int nvmlDeviceGetTopologyCommonAncestor(void* a, void* b, int* level) {
  BEGIN();
  *level = index_of(a) / 2 == index_of(b) / 2 ? 10 : 50;
  return kSuccess;
}
EXPORT int nvmlDeviceGetP2PStatus(void*, void*, int capability, int* status) {
  BEGIN();
  *status = capability == 2 && setting("TOPOLOGY") != "switch" ? 5 : 0;
  return kSuccess;
}
EXPORT int nvmlDeviceGetNvLinkState(void*, unsigned link, int* active) {
  BEGIN();
  const std::string topology = setting("TOPOLOGY");
  *active = link < (topology == "switch" ? 18u : topology == "bridges" ? 4u : 0u) ? 1 : 0;
  return kSuccess;
}
EXPORT int nvmlDeviceGetNvLinkVersion(void*, unsigned, unsigned* version) {
  BEGIN();
  *version = setting("TOPOLOGY") == "switch" ? 6 : 4;
  return kSuccess;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* device, unsigned, PciInfo* pci) {
  BEGIN();
  std::snprintf(
      pci->bus_id,
      sizeof(pci->bus_id),
      "00000000:%02X:00.0",
      setting("TOPOLOGY") == "switch" ? 0xC1u : static_cast<unsigned>((index_of(device) ^ 1) + 1));
  return kSuccess;
}
