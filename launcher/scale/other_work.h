#pragma once
// Measures whether other work used the CPUs while a run was timed.

#include <string>
#include <vector>

namespace lockstep::scale {

// Seconds that these CPUs have worked since the boot, from the text of /proc/stat, including time
// that a hypervisor gave to other machines. Negative if the text has none of these CPUs.
double busy_cpu_seconds(const std::string& stat,
                        const std::vector<int>& cpus,
                        double ticks_per_second);

// The CPU time on this host that is not used by this process and its children.
class OtherWork {
 public:
  // Starts the measurement on `cpus`, those that this process may use.
  explicit OtherWork(std::vector<int> cpus);
  // The average number of CPUs used by other work since then. All children started since must have
  // ended.
  double cpus() const;

 private:
  std::vector<int> cpus_;
  double start_ms_, busy_s_, own_s_;
};

}  // namespace lockstep::scale
