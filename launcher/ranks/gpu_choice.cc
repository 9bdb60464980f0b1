#include "launcher/ranks/gpu_choice.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace lockstep::launcher {
namespace {

std::string name_of(const RankGpus& rank) { return rank.host.substr(0, rank.host.find('/')); }

[[noreturn]] void throw_too_few_gpus(std::span<const RankGpus> ranks, const RankGpus& without) {
  std::set<std::string> gpus;
  size_t on_host = 0;
  for (const RankGpus& rank : ranks) {
    if (rank.host != without.host) continue;
    ++on_host;
    gpus.insert(rank.gpus.begin(), rank.gpus.end());
  }
  throw ConfigError(
      "host {} has {} for {}; start at most {} a host, or use --device cpu (or, for tests, "
      "--share-gpu)",
      name_of(without),
      counted(gpus.size(), "GPU"),
      counted(on_host, "rank"),
      gpus.size());
}

}  // namespace

int choose_gpu(std::span<const RankGpus> ranks, int rank, bool share_gpu) {
  std::vector<size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return ranks[i].local_rank; });
  std::map<std::string, std::set<std::string>> taken;  // by host
  int chosen = -1;
  for (const size_t i : order) {
    const RankGpus& mine = ranks[i];
    if (mine.gpus.empty())
      throw ConfigError(
          "rank {} on {} sees no GPU; check the driver and CUDA_VISIBLE_DEVICES, or use --device "
          "cpu",
          i,
          name_of(mine));
    std::set<std::string>& taken_here = taken[mine.host];
    auto free = std::ranges::find_if(
        mine.gpus, [&](const std::string& gpu) { return !taken_here.contains(gpu); });
    if (free == mine.gpus.end()) {
      if (!share_gpu) throw_too_few_gpus(ranks, mine);
      const auto turn = static_cast<size_t>(mine.local_rank) % mine.gpus.size();
      free = mine.gpus.begin() + static_cast<std::ptrdiff_t>(turn);
    }
    taken_here.insert(*free);
    if (static_cast<int>(i) == rank) chosen = static_cast<int>(free - mine.gpus.begin());
  }
  LOCKSTEP_CHECK(chosen >= 0);
  return chosen;
}

}  // namespace lockstep::launcher
