// Used in builds without hwloc.
#include "launcher/ranks/cpu_domains.h"

#include "runtime/base/cpus.h"

namespace lockstep::launcher {

std::vector<CpuDomain> find_cpu_domains(const std::string&, const std::string&) {
  return {{"", usable_cpus()}};
}

std::string bind_to_domain(const CpuDomain&) { return "built without hwloc"; }

}  // namespace lockstep::launcher
