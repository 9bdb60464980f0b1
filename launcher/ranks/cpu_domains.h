#pragma once
// The NUMA domains of this machine: CPUs with memory that is nearer to them than other memory.

#include <string>
#include <vector>

namespace lockstep::launcher {

// What a process may use of a domain.
struct CpuDomain {
  std::string cpus;  // "0-15,32-47"
  int cores = 0;     // the hyperthreads of a core count once
};

// The domains in which this process may use CPUs, in the order of the machine. Memory without CPUs
// (HBM, CXL) is no domain. A single one, of all CPUs, if some of them have no memory of their own
// or the machine is not readable. For tests, `machine` is a description as hwloc's "numa:2 core:4
// pu:2" and `allowed` the CPUs that the process may use; empty for this machine and process.
std::vector<CpuDomain> find_cpu_domains(const std::string& machine = "",
                                        const std::string& allowed = "");

// Binds all threads of this process, present and future, to the CPUs of a domain. Returns why that
// is not possible; empty if it was.
std::string bind_to_domain(const CpuDomain& domain);

}  // namespace lockstep::launcher
