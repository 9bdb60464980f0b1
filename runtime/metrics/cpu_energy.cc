#include "runtime/metrics/cpu_energy.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::metrics {
namespace {

namespace fs = std::filesystem;

// The smallest ranges, 65 kJ, last longer than this up to 2 kW a package.
constexpr std::chrono::seconds kWatchPeriod{30};

// The first word of a file. Throws IoError.
std::string word_in(const fs::path& file) {
  const std::string text = read_file(file, 4096);
  return text.substr(0, text.find_first_of(" \n"));
}

uint64_t number_in(const fs::path& file) {
  const std::string text = word_in(file);
  uint64_t number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size())
    throw IoError("read", file, "it has no number");
  return number;
}

// Whether a zone's energy is to be added: packages, and the memory beside them.
bool counts(const std::string& folder, const std::string& name) {
  const bool is_part = std::ranges::count(folder, ':') > 1;
  return is_part ? name == "dram" : name.starts_with("package");
}

}  // namespace

CpuEnergy::CpuEnergy(const fs::path& powercap) {
  try {
    find_counters(powercap);
  } catch (const IoError& error) {
    why_not_ = error.what();
    counters_.clear();
  }
}

// Throws IoError if the counters are incomplete.
void CpuEnergy::find_counters(const fs::path& powercap) {
  std::error_code error;
  fs::directory_iterator folders(powercap, error);
  if (error) throw IoError("open", powercap, error.value());
  std::vector<fs::path> zones;
  for (; folders != fs::directory_iterator(); folders.increment(error)) {
    if (error) throw IoError("read", powercap, error.value());
    // intel-rapl-mmio:0 is intel-rapl:0 again, read in another way.
    if (folders->path().filename().string().starts_with("intel-rapl:"))
      zones.push_back(folders->path());
  }
  for (const fs::path& zone : zones) {
    if (!counts(zone.filename(), word_in(zone / "name"))) continue;
    Counter counter{.file = zone / "energy_uj"};
    counter.last_uj = number_in(counter.file);
    counter.range_uj = number_in(zone / "max_energy_range_uj");
    counters_.push_back(std::move(counter));
  }
  if (counters_.empty()) throw IoError("read", powercap, "it has no RAPL counter of a package");
}

double CpuEnergy::joules() {
  const std::lock_guard lock(mutex_);
  for (Counter& counter : counters_) {
    try {
      const uint64_t now_uj = number_in(counter.file);
      const bool started_again = now_uj < counter.last_uj;
      sum_uj_ += now_uj - counter.last_uj + (started_again ? counter.range_uj : 0);
      counter.last_uj = now_uj;
    } catch (const IoError&) {  // the next reading has this energy too
    }
  }
  return static_cast<double>(sum_uj_) / 1e6;
}

void CpuEnergy::watch() {
  if (counters_.empty()) return;
  watch_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      joules();
      std::unique_lock lock(mutex_);
      stopping_.wait_for(lock, stop, kWatchPeriod, [] { return false; });
    }
  });
}

}  // namespace lockstep::metrics
