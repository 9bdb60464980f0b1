#include "launcher/cuda/gpu_readings.h"

#include <fmt/core.h>

#include <utility>

#include "runtime/base/text.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kFallenOffTheBus = 79;

struct Words {
  int64_t number;
  const char* text;
};

constexpr Words kLimits[] = {{kGpuIdle, "idle"},
                             {0x2, "application clocks"},
                             {0x4, "power cap"},
                             {kHardwareSlowdown, "hardware slowdown"},
                             {0x10, "sync boost"},
                             {kSoftwareThermal, "thermal slowdown (software)"},
                             {kHardwareThermal, "thermal slowdown (hardware)"},
                             {kPowerBrake, "power brake"},
                             {0x100, "display clocks"}};

// From NVIDIA's page "Xid Errors" (docs.nvidia.com/deploy/xid-errors).
constexpr Words kXids[] = {
    {13, "an exception in a kernel, most often an illegal access"},
    {31, "a kernel accessed memory that it must not"},
    {43, "a channel stopped after an error of the program"},
    {45, "work was removed after an earlier error, or because a process was killed"},
    {48, "an uncorrectable error in the GPU's memory (double-bit ECC)"},
    {61, "an error of the GPU's firmware"},
    {62, "an error of the GPU's firmware"},
    {63, "a row of memory was remapped, or a page retired: takes effect when the GPU is reset"},
    {64, "a row of memory could not be remapped, or a page not retired: replace the GPU"},
    {74, "an error of an NVLink: check the links, the bridge or the switch"},
    {kFallenOffTheBus, "the GPU has fallen off the bus: check power, cooling and its slot"},
    {92, "many single-bit ECC errors"},
    {94, "an uncorrectable memory error, contained: only the program that used it must end"},
    {95, "an uncorrectable memory error, not contained: reset the GPU"},
    {119, "the GPU's system processor (GSP) does not answer: reset the GPU"},
    {120, "an error of the GPU's system processor (GSP): reset the GPU"},
    {140, "an ECC error that was not recovered: reset the GPU"},
    {149, "an error of an NVLink"}};

}  // namespace

std::string words_for_limits(uint64_t limits) {
  std::string text;
  for (const Words& words : kLimits) {
    if ((limits & static_cast<uint64_t>(words.number)) == 0) continue;
    append_item(text, words.text);
  }
  return text;
}

std::string words_for_xid(int64_t xid) {
  for (const Words& words : kXids) {
    if (words.number == xid) return fmt::format("Xid {}: {}", xid, words.text);
  }
  return fmt::format("Xid {}: see NVIDIA's list of Xid errors", xid);
}

GpuReadings::GpuReadings(const Nvml& nvml, Nvml::Device device) : nvml_(nvml), device_(device) {
  if (nvml.create_event_set(&events_) != Nvml::kSuccess ||
      nvml.register_events(device, Nvml::kXidEvent, events_) != Nvml::kSuccess)
    events_ = nullptr;
}

exec::DeviceState GpuReadings::read() const {
  exec::DeviceState state;
  state.has_monitor = 1;
  const auto read_into = [](double& value, double scale, const auto& call, auto... arguments) {
    unsigned read = 0;
    if (call(arguments..., &read) == Nvml::kSuccess) value = scale * read;
  };
  const auto count_into = [](double& value, double scale, const auto& call, auto... arguments) {
    Nvml::Number read = 0;
    if (call(arguments..., &read) == Nvml::kSuccess) value = scale * static_cast<double>(read);
  };
  read_into(state.clock_mhz, 1, nvml_.clock_info, device_, Nvml::kSmClock);
  read_into(state.max_clock_mhz, 1, nvml_.max_clock_info, device_, Nvml::kSmClock);
  read_into(state.memory_clock_mhz, 1, nvml_.clock_info, device_, Nvml::kMemoryClock);
  read_into(state.power_w, 1e-3, nvml_.power_usage, device_);
  read_into(state.temperature_c, 1, nvml_.temperature, device_, Nvml::kGpuSensor);
  count_into(state.energy_j, 1e-3, nvml_.energy, device_);
  const int since = Nvml::kSinceDriverStart;
  count_into(state.corrected_errors, 1, nvml_.ecc_errors, device_, Nvml::kCorrected, since);
  count_into(state.uncorrected_errors, 1, nvml_.ecc_errors, device_, Nvml::kUncorrected, since);
  Nvml::Number limits = 0;
  if (nvml_.clock_limits(device_, &limits) == Nvml::kSuccess) state.limits = limits;
  Nvml::Utilization used{};
  const bool unused = nvml_.utilization(device_, &used) == Nvml::kSuccess && used.gpu == 0;
  state.busy = unused || (state.limits & kGpuIdle) != 0 ? 0 : 1;
  // The newer form counts the driver's own memory apart, as nvidia-smi does.
  Nvml::MemoryWithReserved memory{};
  memory.version = sizeof(memory) | 2u << 24;
  Nvml::Memory older{};
  if (nvml_.memory_info_with_reserved(device_, &memory) == Nvml::kSuccess) {
    state.used_bytes = static_cast<double>(memory.used);
  } else if (nvml_.memory_info(device_, &older) == Nvml::kSuccess) {
    state.used_bytes = static_cast<double>(older.used);
  }
  return state;
}

std::vector<int64_t> GpuReadings::take_faults() {
  constexpr size_t kMost = 16;
  std::vector<int64_t> faults;
  Nvml::Event event{};
  while (events_ != nullptr && faults.size() < kMost &&
         nvml_.wait_for_event(events_, &event, 0) == Nvml::kSuccess) {
    if ((event.type & Nvml::kXidEvent) != 0) faults.push_back(static_cast<int64_t>(event.data));
  }
  unsigned power = 0;
  if (nvml_.power_usage(device_, &power) == Nvml::kGpuIsLost && !std::exchange(lost_, true) &&
      (faults.empty() || faults.back() != kFallenOffTheBus))
    faults.push_back(kFallenOffTheBus);
  return faults;
}

}  // namespace lockstep::cuda
