#include "collectives/agree/link_rate.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep::collectives {
namespace {

constexpr double kBitsPerByte = 8, kMsPerSecond = 1e3, kGiga = 1e9;
constexpr int64_t kPartBytes = int64_t{1} << 20;  // of a node
constexpr int64_t kLeastBytes = 4096;             // between two ranks

// Exchanges of `slice` bytes between every two ranks of the groups that span the nodes.
class Exchanges {
 public:
  Exchanges(Communicator& communicator, const RankGroup& group, size_t slice, int most_in_flight)
      : communicator_(communicator),
        group_(group),
        slice_(slice),
        bytes_(slice * static_cast<size_t>(group.count)),
        sent_(bytes_),
        received_(bytes_ * static_cast<size_t>(most_in_flight)) {}

  // All ranks begin together.
  void begin() { communicator_.all_gather(received_.data(), 1); }

  void start(int count) {
    for (int i = 0; i < count; ++i)
      handles_.push_back(communicator_.start_exchange(
          {sent_.data(), received_.data() + static_cast<size_t>(i) * bytes_, slice_, group_}));
  }

  void wait() {
    for (const int handle : handles_) communicator_.wait(handle);
    handles_.clear();
  }

  // The largest of all ranks' numbers.
  double agree(double mine) const {
    std::vector<double> all(static_cast<size_t>(communicator_.size()));
    all[static_cast<size_t>(communicator_.rank())] = mine;
    communicator_.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(double));
    return *std::ranges::max_element(all);
  }

 private:
  Communicator& communicator_;
  const RankGroup group_;
  const size_t slice_, bytes_;
  std::vector<std::byte> sent_, received_;
  std::vector<int> handles_;
};

// The milliseconds of `count` exchanges, of which so many are in flight at a time: the best of some
// series, of the slowest rank. The first one warms up.
double series_ms(Exchanges exchanges, int count, int in_flight) {
  constexpr int kRounds = 4;
  double best_ms = 0;
  for (int round = 0; round < kRounds; ++round) {
    exchanges.begin();
    const double start_ms = now_ms();
    for (int done = 0; done < count; done += in_flight) {
      exchanges.start(in_flight);
      exchanges.wait();
    }
    const double ms = now_ms() - start_ms;
    if (round == 1 || (round > 1 && ms < best_ms)) best_ms = ms;
  }
  return std::max(exchanges.agree(best_ms), 1e-3);
}

int64_t peers_of(const Topology& topology) { return topology.per_node * (topology.nodes - 1); }

size_t slice_of(const Topology& topology) {
  return static_cast<size_t>(std::max(kPartBytes / peers_of(topology), kLeastBytes));
}

}  // namespace

LinkRate measure_link(Communicator& communicator, const Topology& topology, int parts) {
  constexpr size_t kSmallest = 8;
  constexpr int kSmall = 20;  // a single one is over at once for the rank that begins last
  LOCKSTEP_CHECK(topology.nodes > 1 && parts >= 1 && parts <= Communicator::kMaxPending);
  const RankGroup group = topology.groups_of(communicator.rank()).back();
  const double latency_ms =
      series_ms(Exchanges(communicator, group, kSmallest, 1), kSmall, 1) / kSmall;
  // All in flight, as buckets are: one alone may use the two directions in turn.
  const size_t slice = slice_of(topology);
  const double ms = series_ms(Exchanges(communicator, group, slice, parts), parts, parts);
  const double bytes = static_cast<double>(slice) * parts * static_cast<double>(peers_of(topology));
  return {bytes * kBitsPerByte * kMsPerSecond / ms / kGiga, latency_ms * 1e3};
}

double measure_unattended_bytes(Communicator& communicator, const Topology& topology, double gbit) {
  constexpr int kParts = 16, kRounds = 5;
  const size_t slice = slice_of(topology);
  Exchanges exchanges(communicator, topology.groups_of(communicator.rank()).back(), slice, kParts);
  const double bytes =
      static_cast<double>(slice) * kParts * static_cast<double>(peers_of(topology));
  const double all_ms = bytes * kBitsPerByte * kMsPerSecond / (gbit * kGiga);
  std::vector<double> sent;
  for (int round = 0; round < kRounds; ++round) {
    exchanges.begin();
    exchanges.start(kParts);
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(all_ms));
    const double start_ms = now_ms();
    exchanges.wait();
    const double rest_ms = exchanges.agree(now_ms() - start_ms);
    sent.push_back(bytes * std::max(0.0, 1 - rest_ms / all_ms));
  }
  std::ranges::nth_element(sent, sent.begin() + kRounds / 2);
  return sent[kRounds / 2];
}

}  // namespace lockstep::collectives
