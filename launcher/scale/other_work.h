#pragma once

#include <string>

namespace lockstep::scale {

// Seconds that the CPUs of a host have worked since its boot, of the text of /proc/stat; time that
// a hypervisor gave to others counts. Negative where the text is another one.
double busy_cpu_seconds(const std::string& stat, double ticks_per_second);

// What others than this process and its children do on this host.
class OtherWork {
 public:
  // Begins to measure.
  OtherWork();
  // CPUs that it took on average since then. All children that were started since must have ended.
  double cpus() const;

 private:
  double start_ms_, busy_s_, own_s_;
};

}  // namespace lockstep::scale
