#include "launcher/scale/other_work.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "runtime/base/time.h"

namespace lockstep::scale {
namespace {

double busy_here(const std::vector<int>& cpus) {
  std::ifstream file("/proc/stat");
  return busy_cpu_seconds(
      {std::istreambuf_iterator<char>(file), {}}, cpus, static_cast<double>(sysconf(_SC_CLK_TCK)));
}

// Ticks of a line "cpu3 ..." in /proc/stat; negative for other lines.
double busy_ticks(const std::string& text, const std::vector<int>& cpus) {
  std::istringstream line(text);
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  line >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  const bool wanted = std::any_of(
      cpus.begin(), cpus.end(), [&](int cpu) { return name == "cpu" + std::to_string(cpu); });
  return line && wanted ? user + nice + system + irq + softirq + steal : -1;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// CPU time of this process and of all its descendants that have ended and been waited for.
double own_cpu_seconds() {
  double total = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    total += seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  return total;
}

}  // namespace

double busy_cpu_seconds(const std::string& stat,
                        const std::vector<int>& cpus,
                        double ticks_per_second) {
  std::istringstream lines(stat);
  double total = -1;
  for (std::string line; std::getline(lines, line);) {
    const double ticks = busy_ticks(line, cpus);
    if (ticks >= 0) total = std::max(total, 0.0) + ticks;
  }
  return total / ticks_per_second;
}

OtherWork::OtherWork(std::vector<int> cpus)
    : cpus_(std::move(cpus)),
      start_ms_(now_ms()),
      busy_s_(busy_here(cpus_)),
      own_s_(own_cpu_seconds()) {}

double OtherWork::cpus() const {
  const double passed_s = (now_ms() - start_ms_) / 1000;
  const double busy_s = busy_here(cpus_) - busy_s_, own_s = own_cpu_seconds() - own_s_;
  if (busy_s_ < 0 || passed_s <= 0) return 0;
  return std::max(0.0, busy_s - own_s) / passed_s;
}

}  // namespace lockstep::scale
