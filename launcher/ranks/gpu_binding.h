#pragma once
// Binds a rank's threads to the cores next to its GPU: transfers to the GPU from another NUMA node
// are slower.

#include <string>

namespace lockstep::launcher {

// The planned binding and its description.
struct GpuBinding {
  std::string cpus;  // to bind to, as "0-15,32-47"; empty for none
  std::string text;  // for the log
};

// Looks up the GPU with this PCI bus id ("0000:1b:00.0"), on a machine given as hwloc's XML or on
// this machine if the XML is empty. `bound_to`, in the format of GpuBinding::cpus, has the CPUs
// that the process may use; a launcher may have bound it to some. Such a binding is kept if
// somebody asked for it (`asked_for`). Otherwise it is replaced, by all CPUs if none are nearer to
// the GPU than others.
GpuBinding plan_gpu_binding(const std::string& pci_bus_id,
                            const std::string& machine_xml,
                            const std::string& bound_to,
                            bool asked_for = true);
// Whether somebody asked for the binding of this process. Open MPI and Intel MPI bind ranks by
// default, Open MPI up to two of them to a core each: too few for a rank's loader and NCCL's
// threads. The others (Slurm, MPICH, taskset) bind only if they are asked to.
bool binding_asked_for();

// Binds all threads of this process, present and future, to the cores of the GPU's NUMA node,
// unless a launcher was asked to bind them. Returns a line for the log. If that is not possible,
// binds nothing, and the line has the reason.
std::string bind_to_gpu(const std::string& pci_bus_id);

}  // namespace lockstep::launcher
