#include "runtime/train/energy_watch.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "collectives/agree/agreement.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"
#include "runtime/train/gather_values.h"

namespace lockstep::train {
namespace {

constexpr double kPauseMs = 1000, kMinPauseMs = 100;
constexpr double kFirstWaitS = 1, kLastWaitS = 0.5;  // for a GPU's reading
constexpr double kJoulesPerKwh = 3.6e6;

// The same text in all containers of a machine, whose counters are the same.
std::string machine_id() {
  const std::string identity = host_identity();
  const size_t slash = identity.find('/');
  return slash + 1 < identity.size() ? identity.substr(slash + 1) : identity;
}

// "12 J", "0.0123 kWh".
std::string energy_text(double joules) {
  return joules < 1e5 ? fmt::format("{:.4g} J", joules)
                      : fmt::format("{:.3g} kWh", joules / kJoulesPerKwh);
}

// What a rank can read of a machine's CPUs or of a GPU, which other ranks may be able to read too.
struct Source {
  std::string thing;    // the same text on all of these ranks; empty: the rank has none
  std::string how;      // empty: this rank cannot read it
  std::string why_not;  // then

  std::string text() const { return thing + '\n' + how + '\n' + why_not; }
};

Source source_of(const std::string& text) {
  const size_t first = text.find('\n'), second = text.find('\n', first + 1);
  return {
      text.substr(0, first), text.substr(first + 1, second - first - 1), text.substr(second + 1)};
}

}  // namespace

std::string words_for(const EnergyReport& report) {
  if (report.joules_per_step < 0) return "";
  return fmt::format(
      ", {} ({} a step)", energy_text(report.total_j), energy_text(report.joules_per_step));
}

void add_energy(Json& json, const EnergyReport& report) {
  for (const auto& [name, value] : {std::pair("energy_total_joules", report.total_j),
                                    std::pair("joules_per_step", report.joules_per_step),
                                    std::pair("energy_cpu_joules", report.cpu_j),
                                    std::pair("energy_gpu_joules", report.gpu_j)})
    if (value >= 0) json[name] = value;
  if (!report.sources.empty()) json["energy_sources"] = report.sources;
  if (!report.not_readable.empty()) json["energy_not_readable"] = report.not_readable;
}

EnergyWatch::EnergyWatch(collectives::Communicator& communicator,
                         exec::DeviceMonitor* monitor,
                         std::span<const std::string> hosts,
                         const std::filesystem::path& powercap,
                         double earlier_j)
    : communicator_(communicator), hosts_(hosts), monitor_(monitor), earlier_j_(earlier_j) {
  const std::string machine = machine_id();
  cpu_.emplace(powercap);
  const std::string& why_not = cpu_->why_not();
  if (choose("CPUs", machine, why_not.empty() ? "RAPL" : "", why_not)) {
    cpu_->watch();
  } else {
    cpu_.reset();
  }
  if (monitor_ != nullptr) {
    gpu_begin_j_ = gpu_last_j_ = gpu_counter(kFirstWaitS);
    const exec::DeviceState state = monitor_->state(0);
    const std::string how = state.energy_j < 0             ? ""
                            : state.energy_from_power != 0 ? "NVML's power, added up over time"
                                                           : "NVML";
    if (!choose("GPU", machine + monitor_->description(), how, monitor_->why_no_energy()))
      monitor_ = nullptr;
  }
  const std::string& missing = report_.not_readable;
  if (!readable_)
    log_info("energy is not readable: {}", missing);
  else
    log_info("energy: {}{}", report_.sources, missing.empty() ? "" : "; not readable: " + missing);
}

// Completes the report, for CPUs or GPUs. Returns whether this rank is the first that can read what
// it has. Collective.
bool EnergyWatch::choose(const std::string& kind,
                         const std::string& thing,
                         const std::string& how,
                         const std::string& why_not) {
  const bool of_hosts = kind == "CPUs";
  const std::vector<std::string> texts =
      collectives::gather_texts(communicator_, Source{thing, how, why_not}.text());
  std::map<std::string, size_t> reader;   // of each thing
  std::map<std::string, int64_t> counts;  // of things, by how they are read
  for (size_t r = 0; r < texts.size(); ++r) {
    const Source source = source_of(texts[r]);
    if (!source.how.empty() && reader.emplace(source.thing, r).second) ++counts[source.how];
  }
  std::set<std::string> unread;
  std::string first;
  for (size_t r = 0; r < texts.size(); ++r) {
    const Source source = source_of(texts[r]);
    if (reader.contains(source.thing) || !unread.insert(source.thing).second) continue;
    if (!first.empty()) continue;
    first = of_hosts ? fmt::format("CPUs of {}: {}", hosts_[r], source.why_not)
                     : fmt::format("GPU of rank {}: {}", r, source.why_not);
  }
  for (const auto& [by, count] : counts)
    append_item(
        report_.sources,
        fmt::format(
            "{} ({})", of_hosts ? "CPUs of " + counted(count, "host") : counted(count, kind), by));
  if (unread.size() > 1) first += fmt::format("; and {} more", unread.size() - 1);
  if (!first.empty()) append_item(report_.not_readable, first, "; ");
  readable_ |= !reader.empty();
  double& known_j = of_hosts ? report_.cpu_j : report_.gpu_j;
  if (!reader.empty()) known_j = 0;
  const auto mine = reader.find(thing);
  return mine != reader.end() && mine->second == static_cast<size_t>(communicator_.rank());
}

// The GPU's counter now, or after `wait_s` the last one that is known; negative if none is.
double EnergyWatch::gpu_counter(double wait_s) {
  if (wait_s > 0) monitor_->refresh();
  const double counter_j = monitor_->state(wait_s).energy_j;
  return counter_j < 0 ? gpu_last_j_ : counter_j;
}

bool EnergyWatch::is_due(int64_t step, int64_t log_every, bool last) {
  if (!readable_ || communicator_.rank() > 0) return false;
  const double now = now_ms();
  const bool due = last || (now >= next_ms_ && (log_every == 0 || step % log_every == 0));
  if (due) next_ms_ = now + (log_every == 0 ? kPauseMs : kMinPauseMs);
  return due;
}

std::optional<metrics::EnergyRecord> EnergyWatch::gather(bool last) {
  if (!readable_) return std::nullopt;
  Joules mine;
  if (cpu_) mine.cpu = cpu_->joules();
  if (monitor_ != nullptr) {
    gpu_last_j_ = gpu_counter(last ? kLastWaitS : 0);
    mine.gpu = gpu_last_j_ - gpu_begin_j_;
  }
  const double before_j = sum_.cpu + sum_.gpu;
  sum_ = {};
  for (const Joules& joules : gather_values(communicator_, mine)) {
    sum_.cpu += joules.cpu;
    sum_.gpu += joules.gpu;
  }
  metrics::EnergyRecord record;
  record.joules = sum_.cpu + sum_.gpu - before_j;
  record.joules_per_step =
      record.joules / static_cast<double>(std::max<int64_t>(steps_ - gathered_steps_, 1));
  record.total_joules = earlier_j_ + sum_.cpu + sum_.gpu;
  gathered_steps_ = steps_;
  return record;
}

EnergyReport EnergyWatch::report() const {
  EnergyReport report = report_;
  if (!readable_ || gathered_steps_ == 0) {
    report.cpu_j = report.gpu_j = -1;
    if (earlier_j_ > 0) report.total_j = earlier_j_;
    return report;
  }
  if (report.cpu_j >= 0) report.cpu_j = sum_.cpu;
  if (report.gpu_j >= 0) report.gpu_j = sum_.gpu;
  report.total_j = earlier_j_ + sum_.cpu + sum_.gpu;
  report.joules_per_step = (sum_.cpu + sum_.gpu) / static_cast<double>(gathered_steps_);
  return report;
}

}  // namespace lockstep::train
