// Monitor and thread share the ownership of what both use, and hold its lock only while they copy
// numbers, never during a call of NVML. So neither side waits for a call that hangs, and the thread
// may outlive the monitor.
#include "launcher/cuda/gpu.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "launcher/cuda/gpu_readings.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/time.h"

namespace lockstep::cuda {
namespace {

constexpr double kPeriodMs = 1000;
constexpr size_t kReadings = 10;
constexpr double kStaleMs = 5000;  // no answer for so long: the driver hangs
constexpr double kEndMs = 500;     // how long the end waits for the thread

std::chrono::duration<double, std::milli> milliseconds(double count) {
  return std::chrono::duration<double, std::milli>(count);
}

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<exec::DeviceState> readings;  // the last ones
  exec::DeviceState first;                 // what counters began with
  double read_ms = now_ms();               // when the last reading was complete
  double power_j = 0;                      // power over the time since the first reading
  int64_t fault = 0;
  std::string why_not;  // no NVML, or it does not know the GPU
  bool stopping = false, ended = false, warned = false;
  bool wanted = false;  // a reading before the next one is due
};

// The mean of the known values; unknown if there are none.
double mean(const std::deque<exec::DeviceState>& readings,
            double exec::DeviceState::*value,
            bool busy_only = false) {
  double sum = 0, count = 0;
  for (const exec::DeviceState& reading : readings) {
    if (reading.*value < 0 || (busy_only && reading.busy == 0)) continue;
    sum += reading.*value;
    ++count;
  }
  return count > 0 ? sum / count : exec::DeviceState::kUnknown;
}

double largest(const std::deque<exec::DeviceState>& readings, double exec::DeviceState::*value) {
  double most = exec::DeviceState::kUnknown;
  for (const exec::DeviceState& reading : readings) most = std::max(most, reading.*value);
  return most;
}

// The limits that at least half of the readings have. Single ones may only be a change of clocks.
uint64_t usual_limits(const std::deque<exec::DeviceState>& readings) {
  uint64_t usual = 0;
  for (uint64_t bit = 1; bit != 0; bit <<= 1) {
    const auto with = std::ranges::count_if(
        readings, [&](const auto& reading) { return (reading.limits & bit) != 0; });
    if (2 * static_cast<size_t>(with) >= readings.size()) usual |= bit;
  }
  return usual & ~kGpuIdle;  // DeviceState::busy has it
}

double since(double first, double now) {
  return first < 0 || now < first ? exec::DeviceState::kUnknown : now - first;
}

// An idle GPU lowers its clock, so only readings under load count, if there are any.
exec::DeviceState summarise(const Shared& shared) {
  const std::deque<exec::DeviceState>& readings = shared.readings;
  exec::DeviceState state = readings.back();
  state.busy = mean(readings, &exec::DeviceState::busy);
  state.clock_mhz = mean(readings, &exec::DeviceState::clock_mhz, state.busy > 0);
  state.memory_clock_mhz = mean(readings, &exec::DeviceState::memory_clock_mhz, state.busy > 0);
  state.power_w = mean(readings, &exec::DeviceState::power_w);
  state.temperature_c = largest(readings, &exec::DeviceState::temperature_c);
  state.limits = usual_limits(readings);
  const exec::DeviceState& first = shared.first;
  state.energy_from_power = first.energy_j < 0 && first.power_w >= 0 ? 1 : 0;
  state.energy_j =
      state.energy_from_power != 0 ? shared.power_j : since(first.energy_j, state.energy_j);
  state.corrected_errors = since(first.corrected_errors, state.corrected_errors);
  state.uncorrected_errors = since(first.uncorrected_errors, state.uncorrected_errors);
  state.fault = shared.fault;
  return state;
}

// What the thread does.
class Watch {
 public:
  Watch(std::shared_ptr<Shared> shared, std::string gpu)
      : shared_(std::move(shared)), gpu_(std::move(gpu)) {}

  void run(const std::string& pci_bus_id) {
    std::string why_not;
    const Nvml* const nvml = Nvml::load(why_not);
    const auto device = nvml == nullptr ? std::nullopt : nvml->find(pci_bus_id);
    if (nvml != nullptr && !device) why_not = "it has no GPU " + pci_bus_id;
    if (!why_not.empty()) {
      log_debug("no state of {} in the metrics: {}", gpu_, why_not);
    } else {
      GpuReadings readings(*nvml, *device);
      do {
        note_faults(readings.take_faults());
        note(readings.read());
      } while (!sleep());
      // What ends a run may be a fault that has only now been reported.
      note_faults(readings.take_faults());
    }
    const std::lock_guard lock(shared_->mutex);
    shared_->ended = true;
    shared_->why_not = why_not;
    shared_->changed.notify_all();
  }

 private:
  // Until the next reading is due or wanted; returns whether the monitor ends.
  bool sleep() {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(
        lock, milliseconds(kPeriodMs), [&] { return shared_->stopping || shared_->wanted; });
    return shared_->stopping;
  }

  void note_faults(const std::vector<int64_t>& faults) {
    if (faults.empty()) return;
    for (const int64_t xid : faults) log_warn("{}: {}", gpu_, words_for_xid(xid));
    const std::lock_guard lock(shared_->mutex);
    shared_->fault = faults.back();
  }

  void note(const exec::DeviceState& reading) {
    exec::DeviceState state;
    {
      const std::lock_guard lock(shared_->mutex);
      if (shared_->stopping) return;
      if (shared_->readings.empty()) shared_->first = reading;
      add_energy(reading);
      shared_->readings.push_back(reading);
      if (shared_->readings.size() > kReadings) shared_->readings.pop_front();
      shared_->read_ms = now_ms();
      shared_->warned = shared_->wanted = false;
      state = summarise(*shared_);
      shared_->changed.notify_all();
    }
    warn_of_slowdown(state);
    if (state.uncorrected_errors > uncorrected_errors_)
      log_warn("{}: {:.0f} new uncorrectable ECC errors in its memory; its results may be wrong",
               gpu_,
               state.uncorrected_errors - uncorrected_errors_);
    uncorrected_errors_ = std::max(uncorrected_errors_, state.uncorrected_errors);
  }

  // Over the time since the reading before.
  void add_energy(const exec::DeviceState& reading) {
    if (shared_->readings.empty()) return;
    const double before_w = shared_->readings.back().power_w;
    if (before_w < 0 || reading.power_w < 0) return;
    shared_->power_j += (before_w + reading.power_w) / 2 * (now_ms() - shared_->read_ms) / 1000;
  }

  void warn_of_slowdown(const exec::DeviceState& state) {
    const uint64_t alarming = state.limits & kAlarming;
    if ((alarming & ~alarming_) != 0) {
      std::string text = fmt::format("{} is slowed down: {}", gpu_, words_for_limits(alarming));
      if (state.clock_mhz >= 0 && state.max_clock_mhz > 0)
        text += fmt::format("; {:.0f} of {:.0f} MHz", state.clock_mhz, state.max_clock_mhz);
      if (state.temperature_c >= 0) text += fmt::format(", {:.0f} C", state.temperature_c);
      if (state.power_w >= 0) text += fmt::format(", {:.0f} W", state.power_w);
      log_warn("{}", text);
    } else if (alarming == 0 && alarming_ != 0) {
      log_warn("{} is no longer slowed down", gpu_);
    }
    alarming_ = alarming;
  }

  std::shared_ptr<Shared> shared_;
  std::string gpu_;
  uint64_t alarming_ = 0;
  double uncorrected_errors_ = 0;
};

class GpuMonitor final : public exec::DeviceMonitor {
 public:
  GpuMonitor(const std::string& pci_bus_id, const std::string& description)
      : description_(description), gpu_(fmt::format("{} on {}", description, host_name())) {
    std::thread([watch = Watch(shared_, gpu_), pci_bus_id]() mutable {
      watch.run(pci_bus_id);
    }).detach();
  }
  GpuMonitor(const GpuMonitor&) = delete;
  GpuMonitor& operator=(const GpuMonitor&) = delete;
  ~GpuMonitor() override {
    std::unique_lock lock(shared_->mutex);
    shared_->stopping = true;
    shared_->changed.notify_all();
    shared_->changed.wait_for(lock, milliseconds(kEndMs), [&] { return shared_->ended; });
  }

  exec::DeviceState state(double wait_s) override {
    std::unique_lock lock(shared_->mutex);
    shared_->changed.wait_for(lock, milliseconds(1000 * wait_s), [&] {
      return (!shared_->readings.empty() && !shared_->wanted) || shared_->ended;
    });
    const bool known = !shared_->readings.empty();
    exec::DeviceState unknown;
    if (shared_->ended) return unknown;
    unknown.has_monitor = 1;
    const double silent_ms = now_ms() - shared_->read_ms;
    if (known && silent_ms < kStaleMs) return summarise(*shared_);
    if ((wait_s > 0 || silent_ms > kStaleMs) && !std::exchange(shared_->warned, true))
      log_warn("{}: NVIDIA's driver has not answered for {:.0f} s; the metrics lack its state",
               gpu_,
               silent_ms / 1000);
    return unknown;
  }

  void refresh() override {
    const std::lock_guard lock(shared_->mutex);
    shared_->wanted = true;
    shared_->changed.notify_all();
  }
  std::string why_no_energy() const override {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->why_not.empty()) return shared_->why_not;
    return shared_->readings.empty() ? "NVIDIA's driver does not answer"
                                     : "NVML reports neither its energy nor its power";
  }

  std::string description() const override { return description_; }
  std::string words_for_limits(uint64_t limits) const override {
    return cuda::words_for_limits(limits);
  }

 private:
  std::string description_, gpu_;
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

}  // namespace

std::unique_ptr<exec::DeviceMonitor> make_gpu_monitor(const std::string& pci_bus_id,
                                                      const std::string& description) {
  return std::make_unique<GpuMonitor>(pci_bus_id, description);
}

}  // namespace lockstep::cuda
