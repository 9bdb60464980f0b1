#pragma once
// Lines for the log: which GPUs the ranks have, which CPUs their threads, and what connects the
// GPUs.

#include <span>
#include <string>
#include <vector>

#include "launcher/cuda/plugin.h"

namespace lockstep::launcher {

struct GpuPlace {
  std::string host;  // host_identity()
  int ordinal = 0;   // of the GPU, among those that the rank sees
  std::string pci_bus_id;
  std::string binding;  // GpuBinding::text
  std::string links;    // on the first rank of a host: describe_links()
};

// The distinct GPUs of the ranks of this host, by their first rank.
std::vector<std::string> gpus_of_host(std::span<const GpuPlace> ranks, const std::string& host);

// The names of these GPUs in the lines: their ordinals, or the PCI bus ids if each rank sees only
// some of them.
std::vector<std::string> names_of_gpus(std::span<const GpuPlace> ranks, const std::string& host);

// "GPUs 0-3: NVLink 4, 18 links each", "GPUs 0-1, 2-3: PCIe through a switch; all others: PCIe
// across sockets". `links`: as Plugin::find_links returns them. Empty for fewer than two GPUs.
std::string describe_links(const std::vector<std::string>& names,
                           std::span<const cuda::GpuLink> links);

// For each host a line for each binding, and one for its links. Hosts that are alike share theirs.
std::vector<std::string> describe_places(std::span<const GpuPlace> ranks);

}  // namespace lockstep::launcher
