#pragma once
// Keeps a rank's threads on the cores next to its GPU: what crosses to another NUMA node on the way
// to the GPU takes longer.

#include <string>

namespace lockstep {

// What to do, and what to say about it.
struct GpuBinding {
  std::string cpus;  // to bind to, as "0-15,32-47"; empty for none
  std::string text;  // for the log
};

// Looks up the GPU with this PCI bus id ("0000:1b:00.0") on a machine given as hwloc's XML, or on
// this one where the XML is empty. `bound_to`, like GpuBinding::cpus, are those that the process
// may use: fewer than the machine has where a launcher has bound it. That stays where somebody
// asked for it (`asked_for`); else it gives way, to all CPUs where none are nearer to the GPU.
GpuBinding plan_gpu_binding(const std::string& pci_bus_id,
                            const std::string& machine_xml,
                            const std::string& bound_to,
                            bool asked_for = true);
// Whether the binding of this process is one that somebody asked for. Open MPI binds ranks without
// being asked, and up to two of them to a core each: too few for a rank's loader and NCCL's
// threads.
bool binding_asked_for();

// Binds all threads of this process, and those that they will start, to the cores of the GPU's NUMA
// node, unless a launcher was asked to bind them. Returns a line for the log; where nothing can be
// found out or done, nothing is bound and the line says why.
std::string bind_to_gpu(const std::string& pci_bus_id);

}  // namespace lockstep
