#include "collectives/reduce/step_totals.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/bit_checksum.h"
#include "runtime/base/error.h"

namespace lockstep::collectives {

TotalsExchange::TotalsExchange(Communicator& control, const LaneShares& shares, NodeMemory* node)
    : control_(control),
      node_(node != nullptr && node->count() == control.size() ? node : nullptr),
      shares_(shares),
      waits_(control, nullptr),
      part_(sizeof(StepReport) + static_cast<size_t>(shares.most()) * sizeof(LaneStatistics)),
      parts_(static_cast<size_t>(control.size()) * part_),
      places_(static_cast<size_t>(shares.lanes)) {
  for (int rank = 0; rank < control.size(); ++rank) {
    const LocalLanes lanes = shares.of(rank);
    for (int i = 0; i < lanes.count; ++i)
      places_[static_cast<size_t>(lanes[i])] = static_cast<size_t>(rank) * part_ +
                                               sizeof(StepReport) +
                                               static_cast<size_t>(i) * sizeof(LaneStatistics);
  }
  if (node_ != nullptr) node_->allocate_messages(part_);
}

StepTotals TotalsExchange::sum(std::span<const LaneStatistics> local, const StepReport& report) {
  LOCKSTEP_CHECK(local.empty() ||
                 static_cast<int>(local.size()) == shares_.of(control_.rank()).count);
  const auto part_of_rank = [&](int rank) {
    return parts_.data() + static_cast<size_t>(rank) * part_;
  };
  std::byte* const to = part_of_rank(control_.rank());
  std::memcpy(to, &report, sizeof(report));
  std::memcpy(to + sizeof(report), local.data(), local.size_bytes());
  if (control_.size() > 1)
    waits_.timed(ExchangeObserver::Wait::kTotals, -1, [&] {
      node_ != nullptr ? node_->all_gather_messages(parts_.data())
                       : control_.all_gather(parts_.data(), part_);
    });

  StepTotals totals;
  totals.digest = report.digest;
  ExactSum squares;
  for (int rank = 0; rank < control_.size(); ++rank) {
    StepReport of_rank;
    std::memcpy(&of_rank, part_of_rank(rank), sizeof(of_rank));
    const auto& [flags, digest, busy_ms, rank_squares] = of_rank;
    totals.flags |= flags;
    totals.digest_sum = rank == 0 ? digest : add_halves(totals.digest_sum, digest);
    totals.digests_differ = totals.digests_differ || digest != report.digest;
    squares += rank_squares;
    if (rank == 0 || busy_ms > totals.slowest_ms) {
      totals.slowest_ms = busy_ms;
      totals.slowest_rank = rank;
    }
    totals.fastest_ms = rank == 0 ? busy_ms : std::min(totals.fastest_ms, busy_ms);
  }
  if (local.empty()) return totals;
  totals.squared_norm = squares.value();
  // In the order of the lanes, which gives the same sums on any number of ranks.
  for (const size_t place : places_) {
    LaneStatistics statistics;
    std::memcpy(&statistics, parts_.data() + place, sizeof(statistics));
    totals.loss_sum += statistics.values[0];
    totals.valid_count += statistics.values[1];
    totals.correct_count += statistics.values[2];
    totals.top5_count += statistics.values[3];
  }
  return totals;
}

}  // namespace lockstep::collectives
