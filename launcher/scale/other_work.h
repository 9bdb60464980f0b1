#pragma once
// Whether something else used the CPUs while a run was timed.

#include <string>
#include <vector>

namespace lockstep::scale {

// Seconds that these CPUs of a host have worked since its boot, of the text of /proc/stat; time
// that a hypervisor gave to others counts. Negative where the text has none of them.
double busy_cpu_seconds(const std::string& stat,
                        const std::vector<int>& cpus,
                        double ticks_per_second);

// What others than this process and its children do on CPUs of this host.
class OtherWork {
 public:
  // Begins to measure; `cpus`: those that this process may run on.
  explicit OtherWork(std::vector<int> cpus);
  // CPUs that it took on average since then. All children that were started since must have ended.
  double cpus() const;

 private:
  std::vector<int> cpus_;
  double start_ms_, busy_s_, own_s_;
};

}  // namespace lockstep::scale
