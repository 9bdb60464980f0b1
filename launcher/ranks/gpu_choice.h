#pragma once
// Which GPU each rank uses.

#include <span>
#include <string>
#include <vector>

namespace lockstep {

// What one rank has told all others.
struct RankGpus {
  std::string host;               // host_identity(), or its name
  int local_rank = 0;             // Session::local_rank()
  std::vector<std::string> gpus;  // that it sees, by ordinal: PCI bus ids, or UUIDs
};

// The ordinal, among the GPUs that it sees, of the one that `rank` uses: the ranks of a host take
// them in the order of their local ranks, each the first that is still free. So ranks that see the
// same GPUs get one each, and a rank to which the launcher shows a single one gets that. Where GPUs
// are fewer than ranks, share_gpu lets the ranks go round. Pure: every rank computes the same, and
// throws the same ConfigError where some rank of the run would be left without a GPU.
int choose_gpu(std::span<const RankGpus> ranks, int rank, bool share_gpu);

}  // namespace lockstep
