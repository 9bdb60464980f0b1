#pragma once
// Chooses the GPU of each rank.

#include <span>
#include <string>
#include <vector>

namespace lockstep::launcher {

// What each rank reports to all others.
struct RankGpus {
  std::string host;               // host_identity(), or its name
  int local_rank = 0;             // Session::local_rank()
  std::vector<std::string> gpus;  // visible ones, by ordinal: PCI bus ids or UUIDs
};

// Returns the ordinal, among the visible GPUs, of the one that `rank` uses. The ranks of a host
// choose in the order of their local ranks, each the first that is still free. So ranks that see
// the same GPUs get one each, and a rank to which the launcher shows a single GPU gets that one.
// With share_gpu, ranks take turns if there are fewer GPUs. A pure function: every rank computes
// the same, and throws the same ConfigError if some rank of the run would be left without a GPU.
int choose_gpu(std::span<const RankGpus> ranks, int rank, bool share_gpu);

}  // namespace lockstep::launcher
