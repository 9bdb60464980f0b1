// Every GPU counts the beginnings and ends of the operations between ranks (DevicePoint), and all
// ranks have the same operations in the same order. So the GPUs with the least count are those that
// the others wait for:
//
//   ranks 0, 1, 2   count 11   in operation 6, and wait for rank 3
//   rank 3          count 10   after operation 5: has not reached operation 6
//
// An even count is between two operations: the GPU computes and does not end, or its host has not
// queued more work. If all counts are equal and odd, all are in one operation that does not end.
#include "collectives/watch/late_device.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "runtime/base/text.h"

namespace lockstep::collectives {
namespace {

constexpr const char* kAskNccl =
    "; while it hangs, `ncclras -v` on a host of the run (NCCL 2.24 or newer) lists the ranks that "
    "NCCL misses, and NCCL_DEBUG=INFO what it does; a longer comm.timeout_s leaves time for it";

using Ranks = std::vector<const FlightMoment*>;

// "rank 3 on node1 (process 4711)", "ranks 0, 1 and 2".
std::string names_of(const Ranks& ranks) {
  if (ranks.size() == 1) return name_of(*ranks[0]);
  std::vector<std::string> numbers;
  for (const FlightMoment* rank : ranks) numbers.push_back(std::to_string(rank->rank));
  return "ranks " + joined_with("and", numbers);
}

std::string short_names_of(const Ranks& ranks) {
  return ranks.size() == 1 ? fmt::format("rank {}", ranks[0]->rank) : names_of(ranks);
}

// Why the GPU of a rank, between two operations, has not begun the next one.
std::string reason(const FlightMoment& rank, double limit_s) {
  if (rank.device_wait_s < limit_s / 2)
    return fmt::format("its process has not queued it: {}", text_of(rank));
  if (rank.device.count == 0) return "its GPU hangs in a computation";
  return "its GPU hangs in a computation after the " + text_of(rank.device);
}

}  // namespace

std::string name_of(const FlightMoment& rank) {
  return fmt::format("rank {} on {} (process {})", rank.rank, rank.host, rank.process);
}

std::string late_device(std::span<const FlightMoment> ranks) {
  double waited_s = 0;
  for (const FlightMoment& rank : ranks)
    if (rank.device_late) waited_s = std::max(waited_s, rank.device_wait_s);
  if (waited_s == 0) return "";
  const auto by_count = [](const FlightMoment& a, const FlightMoment& b) {
    return a.device.count < b.device.count;
  };
  const uint64_t least = std::ranges::min_element(ranks, by_count)->device.count;
  Ranks behind, ahead, waiting;
  const FlightMoment* next = nullptr;  // the least advanced of those that are ahead
  for (const FlightMoment& rank : ranks) {
    (rank.device.count == least ? behind : ahead).push_back(&rank);
    if (rank.device_late) waiting.push_back(&rank);
    if (rank.device.count == least) continue;
    if (next == nullptr || by_count(rank, *next)) next = &rank;
  }
  const FlightMoment& late = *behind[0];
  const bool inside = late.device.inside();
  const char* const has = behind.size() == 1 ? "has" : "have";
  if (next == nullptr && inside)
    return fmt::format(
        "the GPUs of all ranks have been in the {}, step {}, for {:.3g} s: NCCL or the "
        "network hangs{}",
        text_of(late.device),
        late.step,
        waited_s,
        kAskNccl);
  if (next == nullptr)  // without an operation that somebody waits for, those who wait hang
    return fmt::format("{} {} not finished the work of the GPU, step {}, for {:.3g} s: {}",
                       names_of(waiting),
                       waiting.size() == 1 ? "has" : "have",
                       waiting[0]->step,
                       waited_s,
                       reason(*waiting[0], waited_s));
  if (inside)
    return fmt::format(
        "{} {} not finished the {}, step {}, which {} finished {:.3g} s ago or more: "
        "NCCL or the network hangs{}",
        names_of(behind),
        has,
        text_of(late.device),
        late.step,
        short_names_of(ahead),
        waited_s,
        kAskNccl);
  return fmt::format("{} {} not reached the {}, step {}, for which {} {} waited {:.3g} s: {}",
                     names_of(behind),
                     has,
                     text_of(next->device),
                     next->step,
                     short_names_of(ahead),
                     ahead.size() == 1 ? "has" : "have",
                     waited_s,
                     reason(late, waited_s));
}

}  // namespace lockstep::collectives
