#include "collectives/agree/link_rate.h"

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {

double measure_link_gbit(Communicator& communicator, const Topology& topology) {
  constexpr int kRounds = 4;  // the first one warms up
  constexpr int64_t kNodeBytes = int64_t{4} << 20, kLeast = 4096;
  LOCKSTEP_CHECK(topology.nodes > 1);
  const RankGroup group = topology.groups_of(communicator.rank()).back();
  const int64_t peers = topology.per_node * (topology.nodes - 1);
  const auto slice = static_cast<size_t>(std::max(kNodeBytes / peers, kLeast));
  std::vector<std::byte> sent(slice * static_cast<size_t>(group.count)), received(sent.size());
  double best_ms = 0;
  for (int round = 0; round < kRounds; ++round) {
    communicator.all_gather(received.data(), 1);  // all begin together
    const double start_ms = now_ms();
    communicator.wait(communicator.start_exchange({sent.data(), received.data(), slice, group}));
    const double ms = now_ms() - start_ms;
    if (round == 1 || (round > 1 && ms < best_ms)) best_ms = ms;
  }
  std::vector<double> times(static_cast<size_t>(communicator.size()));
  times[static_cast<size_t>(communicator.rank())] = best_ms;
  communicator.all_gather(reinterpret_cast<std::byte*>(times.data()), sizeof(double));
  constexpr double kBitsPerByte = 8, kMsPerSecond = 1e3, kGiga = 1e9;
  const double slowest_ms = std::max(*std::ranges::max_element(times), 1e-3);
  return static_cast<double>(slice) * static_cast<double>(peers) * kBitsPerByte * kMsPerSecond /
         slowest_ms / kGiga;
}

}  // namespace lockstep::collectives
