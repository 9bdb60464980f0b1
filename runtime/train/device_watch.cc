#include "runtime/train/device_watch.h"

#include <algorithm>
#include <cstddef>

#include "collectives/agree/agreement.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/train/gather_values.h"

namespace lockstep::train {
namespace {

constexpr double kSlow = 0.95, kRecovered = 0.97;  // of the other ranks' median clock
constexpr double kUnderLoad = 0.5;                 // share of the readings in which it works
constexpr double kSettledMs = 3000;
constexpr size_t kMaxWarnings = 8;  // at once
constexpr double kFirstWaitS = 3;
constexpr double kPauseMs = 1000;
constexpr double kGiB = 1 << 30;

// Its clock under load; an idle device lowers its clock.
double loaded_clock(const exec::DeviceState& state) {
  return state.busy >= kUnderLoad ? state.clock_mhz : exec::DeviceState::kUnknown;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[values.size() / 2] + values[(values.size() - 1) / 2]) / 2;
}

std::string details_of(const exec::DeviceState& state, const exec::DeviceMonitor& monitor) {
  const std::string limits = monitor.words_for_limits(state.limits);
  std::string text = limits.empty() ? "no reason is reported" : "reason: " + limits;
  if (state.temperature_c >= 0) text += fmt::format(", {:.0f} C", state.temperature_c);
  if (state.power_w >= 0) text += fmt::format(", {:.0f} W", state.power_w);
  return text;
}

// The smallest known value, and the first rank that has it.
void lower(double& least, int64_t* rank, double value, size_t r) {
  if (value < 0 || (least >= 0 && value >= least)) return;
  least = value;
  if (rank != nullptr) *rank = static_cast<int64_t>(r);
}

// Whether `value` is known and larger than `most`, which it then becomes.
template <typename Number>
bool raise(Number& most, double value) {
  if (value < 0 || static_cast<Number>(value) <= most) return false;
  most = static_cast<Number>(value);
  return true;
}

template <typename Number>
void add_known(Number& sum, double value) {
  if (value >= 0) sum = std::max(sum, Number{0}) + static_cast<Number>(value);
}

}  // namespace

// The median clock of the other ranks on the same model of device; nothing if there are none.
std::optional<double> SlowClocks::clock_of_others(std::span<const exec::DeviceState> states,
                                                  size_t rank) const {
  std::vector<double> clocks;
  for (size_t r = 0; r < states.size(); ++r) {
    if (r != rank && ranks_[r].clock_mhz > 0 &&
        states[r].max_clock_mhz == states[rank].max_clock_mhz)
      clocks.push_back(ranks_[r].clock_mhz);
  }
  return clocks.empty() ? std::nullopt : std::optional(median(clocks));
}

std::vector<std::string> SlowClocks::judge(std::span<const exec::DeviceState> states,
                                           std::span<const std::string> names,
                                           const exec::DeviceMonitor& monitor,
                                           double now_ms,
                                           bool last) {
  ranks_.resize(states.size());
  for (size_t r = 0; r < states.size(); ++r) {
    Rank& rank = ranks_[r];
    const double clock = loaded_clock(states[r]);
    if (clock <= 0) rank.loaded_since_ms = -1;
    if (clock > 0 && rank.loaded_since_ms < 0) rank.loaded_since_ms = now_ms;
    const bool settled = last || now_ms - rank.loaded_since_ms >= kSettledMs;
    rank.clock_mhz = settled ? clock : exec::DeviceState::kUnknown;
  }
  std::vector<std::string> warnings, recovered;
  for (size_t r = 0; r < states.size(); ++r) {
    Rank& rank = ranks_[r];
    const std::optional<double> others =
        rank.clock_mhz > 0 ? clock_of_others(states, r) : std::nullopt;
    if (!others) continue;
    if (!rank.slow && rank.clock_mhz < kSlow * *others) {
      rank.slow = true;
      warnings.push_back(
          fmt::format("{}: its clock of {:.0f} MHz is {:.0f}% below the other ranks' median of "
                      "{:.0f} MHz, and they wait for it; {}",
                      names[r],
                      rank.clock_mhz,
                      100 * (1 - rank.clock_mhz / *others),
                      *others,
                      details_of(states[r], monitor)));
    } else if (rank.slow && rank.clock_mhz >= kRecovered * *others) {
      rank.slow = false;
      recovered.push_back(fmt::format(
          "{}: its clock is up to the others' again, {:.0f} MHz", names[r], rank.clock_mhz));
    }
  }
  if (warnings.size() > kMaxWarnings) {
    const size_t more = warnings.size() - kMaxWarnings;
    warnings.resize(kMaxWarnings);
    warnings.push_back(fmt::format("the clocks of {} more ranks are as low", more));
  }
  warnings.insert(warnings.end(), recovered.begin(), recovered.end());
  return warnings;
}

std::string words_for(std::span<const DeviceReport> reports) {
  DeviceReport all;
  int64_t slowest = 0;
  std::string slowed;
  for (size_t r = 0; r < reports.size(); ++r) {
    const DeviceReport& report = reports[r];
    lower(all.clock_mhz_min, &slowest, report.clock_mhz_min, r);
    raise(all.clock_mhz_max, report.clock_mhz_max);
    raise(all.temperature_c_max, report.temperature_c_max);
    add_known(all.power_w, report.power_w);
    add_known(all.energy_j, report.energy_j);
    if (!report.limits.empty()) append_item(slowed, fmt::format("rank {} ({})", r, report.limits));
  }
  std::string text;
  const auto add = [&](const std::string& part) { append_item(text, part); };
  if (all.clock_mhz_min >= 0)
    add(fmt::format("{:.0f} to {:.0f} MHz{}",
                    all.clock_mhz_min,
                    all.clock_mhz_max,
                    reports.size() > 1 ? fmt::format(" (lowest on rank {})", slowest) : ""));
  if (all.power_w >= 0) add(fmt::format("{:.0f} W", all.power_w));
  if (all.energy_j >= 0) add(fmt::format("{:.3g} kWh", all.energy_j / 3.6e6));
  if (all.temperature_c_max >= 0) add(fmt::format("at most {:.0f} C", all.temperature_c_max));
  if (text.empty()) return "";
  if (!slowed.empty()) text += "; clock held down: " + slowed;
  return fmt::format("{}: {}", reports.size() > 1 ? "GPUs" : "GPU", text);
}

DeviceWatch::DeviceWatch(collectives::Communicator& communicator,
                         exec::DeviceMonitor* monitor,
                         double planned_bytes,
                         std::span<const std::string> hosts)
    : communicator_(communicator), monitor_(monitor), planned_bytes_(planned_bytes) {
  if (monitor_ == nullptr) return;
  const std::vector<std::string> devices =
      collectives::gather_texts(communicator, monitor_->description());
  for (size_t r = 0; r < devices.size(); ++r)
    names_.push_back(fmt::format("rank {} on {}, {}", r, hosts[r], devices[r]));
  totals_.resize(devices.size());
  const std::vector<exec::DeviceState> states =
      gather_values(communicator, monitor_->state(kFirstWaitS));
  if (std::ranges::none_of(states, &exec::DeviceState::has_monitor)) monitor_ = nullptr;
  log_memory(states);
}

// Of the rank that uses most.
void DeviceWatch::log_memory(std::span<const exec::DeviceState> states) const {
  const auto most = std::ranges::max_element(states, {}, &exec::DeviceState::used_bytes);
  if (most->used_bytes < 0) return;
  log_info(
      "GPU memory in use on rank {}: {:.2f} GiB, of which the plan has {:.2f} GiB; beside it are "
      "the libraries, and other processes",
      most - states.begin(),
      most->used_bytes / kGiB,
      planned_bytes_ / kGiB);
}

bool DeviceWatch::is_due(int64_t step, int64_t log_every, bool last) {
  if (monitor_ == nullptr || communicator_.rank() > 0) return false;
  const double now = now_ms();
  const bool due = last || (log_every > 0 ? step % log_every == 0 : now >= next_ms_);
  if (due) next_ms_ = now + kPauseMs;
  return due;
}

std::optional<metrics::DeviceRecord> DeviceWatch::gather(bool last) {
  if (monitor_ == nullptr) return std::nullopt;
  const std::vector<exec::DeviceState> states = gather_values(communicator_, monitor_->state(0));
  if (communicator_.rank() > 0) return std::nullopt;
  for (const std::string& line : slow_clocks_.judge(states, names_, *monitor_, now_ms(), last))
    log_warn("{}", line);
  add(states);
  return record_of(states);
}

metrics::DeviceRecord DeviceWatch::record_of(std::span<const exec::DeviceState> states) const {
  metrics::DeviceRecord record;
  uint64_t limits = 0;
  for (size_t r = 0; r < states.size(); ++r) {
    const exec::DeviceState& state = states[r];
    const auto rank = static_cast<int64_t>(r);
    if (state.clock_mhz < 0 && state.power_w < 0 && state.used_bytes < 0 && state.temperature_c < 0)
      continue;
    lower(record.clock_mhz_min, &record.clock_mhz_min_rank, loaded_clock(state), r);
    raise(record.clock_mhz_max, loaded_clock(state));
    raise(record.max_clock_mhz, state.max_clock_mhz);
    lower(record.memory_clock_mhz_min, nullptr, state.memory_clock_mhz, r);
    add_known(record.power_w, state.power_w);
    if (raise(record.temperature_c_max, state.temperature_c)) record.temperature_c_max_rank = rank;
    raise(record.memory_used_bytes, state.used_bytes);
    add_known(record.ecc_corrected, state.corrected_errors);
    add_known(record.ecc_uncorrected, state.uncorrected_errors);
    record.limited_ranks = std::max<int64_t>(record.limited_ranks, 0) + (state.limits != 0 ? 1 : 0);
    limits |= state.limits;
    if (state.fault != 0) record.xid = state.fault, record.xid_rank = rank;
  }
  if (record.memory_used_bytes >= 0)
    record.memory_beside_plan_bytes =
        std::max<int64_t>(0, record.memory_used_bytes - static_cast<int64_t>(planned_bytes_));
  record.limits = monitor_->words_for_limits(limits);
  return record;
}

void DeviceWatch::add(std::span<const exec::DeviceState> states) {
  for (size_t r = 0; r < states.size(); ++r) {
    const exec::DeviceState& state = states[r];
    Totals& totals = totals_[r];
    DeviceReport& report = totals.report;
    lower(report.clock_mhz_min, nullptr, loaded_clock(state), r);
    raise(report.clock_mhz_max, loaded_clock(state));
    raise(report.temperature_c_max, state.temperature_c);
    raise(report.energy_j, state.energy_j);
    if (state.power_w >= 0) {
      totals.power_sum += state.power_w;
      ++totals.power_count;
    }
    totals.limits |= state.limits;
  }
}

std::vector<DeviceReport> DeviceWatch::reports() const {
  std::vector<DeviceReport> reports;
  if (monitor_ == nullptr || communicator_.rank() > 0) return reports;
  for (const Totals& totals : totals_) {
    reports.push_back(totals.report);
    if (totals.power_count > 0) reports.back().power_w = totals.power_sum / totals.power_count;
    reports.back().limits = monitor_->words_for_limits(totals.limits);
  }
  return reports;
}

}  // namespace lockstep::train
