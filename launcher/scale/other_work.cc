#include "launcher/scale/other_work.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "runtime/base/time.h"

namespace lockstep::scale {
namespace {

double busy_here() {
  std::ifstream file("/proc/stat");
  return busy_cpu_seconds({std::istreambuf_iterator<char>(file), {}},
                          static_cast<double>(sysconf(_SC_CLK_TCK)));
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// Of this process and of the children, and theirs, that it has seen end.
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

double busy_cpu_seconds(const std::string& stat, double ticks_per_second) {
  std::istringstream line(stat.substr(0, stat.find('\n')));
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  line >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> steal;
  if (!line || name != "cpu") return -1;
  return (user + nice + system + irq + softirq + steal) / ticks_per_second;
}

OtherWork::OtherWork() : start_ms_(now_ms()), busy_s_(busy_here()), own_s_(own_cpu_seconds()) {}

double OtherWork::cpus() const {
  const double passed_s = (now_ms() - start_ms_) / 1000;
  const double busy_s = busy_here() - busy_s_, own_s = own_cpu_seconds() - own_s_;
  if (busy_s_ < 0 || passed_s <= 0) return 0;
  return std::max(0.0, busy_s - own_s) / passed_s;
}

}  // namespace lockstep::scale
