#include "collectives/reduce/gradient_exchange.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "runtime/base/error.h"

namespace lockstep::collectives {

GradientExchange::GradientExchange(GradientExchangeSetup setup)
    : slices_(setup.communicators.slices),
      math_(setup.math),
      node_(setup.communicators.node),
      rank_(setup.communicators.control.rank()),
      waits_(slices_, node_),
      shares_(setup.shares),
      lanes_(shares_.of(rank_)),
      turns_(shares_.order == LaneOrder::kEachSummed ? shares_.most() : lanes_.count),
      gradients_(std::move(setup.gradients)),
      own_(math_,
           gradients_,
           setup.topology.part_of(rank_),
           shares_.ranks,
           setup.sums,
           setup.measures),
      rows_(std::move(setup.rows)),
      last_exchange_(gradients_.buckets.size()) {
  LOCKSTEP_CHECK(slices_.size() == shares_.ranks && slices_.rank() == rank_ &&
                 setup.communicators.control.size() == shares_.ranks);
  LOCKSTEP_CHECK(gradients_.gaps.size() == gradients_.offsets.size());
  for (int rank = 0; rank < shares_.ranks; ++rank)
    lanes_of_ranks_.push_back(shares_.of(rank).count);
  lanes_of_turn_.resize(lanes_of_ranks_.size());
}

void GradientExchange::begin_step(TransferChecksums* transfers) {
  transfers_ = transfers;
  lane_ = 0;
  waits_.clear();
  own_.begin_step();
}

void GradientExchange::gather_lanes(std::byte* all, size_t bytes) {
  if (ranks() == 1) return;
  const auto gather = [&](std::byte* lanes, const std::vector<int>& counts) {
    // One slot of a rank is faster for a library.
    if (std::ranges::adjacent_find(counts, std::not_equal_to()) == counts.end()) {
      slices_.all_gather(lanes, bytes * static_cast<size_t>(counts.front()));
    } else {
      slices_.all_gather(lanes, bytes, counts);
    }
  };
  waits_.timed(Wait::kLanes, -1, [&] {
    if (shares_.order != LaneOrder::kEachSummed) return gather(all, lanes_of_ranks_);
    for (int turn = 0; turn < turns_; ++turn) {
      for (int rank = 0; rank < ranks(); ++rank)
        lanes_of_turn_[static_cast<size_t>(rank)] = shares_.turn(turn, rank).count;
      gather(all + static_cast<size_t>(shares_.turn(turn).first) * bytes, lanes_of_turn_);
    }
  });
}

GradientExchange::LaneRows GradientExchange::lane_rows(size_t table) const {
  const RowTable& rows = rows_.layout.tables[table];
  const auto lane = static_cast<size_t>(lanes_[lane_]);
  return {rows_.data + rows.ids_at + lane * rows.lane_id_bytes(),
          rows_.data + rows.rows_at + lane * rows.lane_row_bytes()};
}

bool GradientExchange::has_rows(int bucket) const {
  const Range& range = gradients_.range(bucket);
  return std::ranges::any_of(rows_.layout.tables, [&](const RowTable& table) {
    return table.offset < range.end && range.begin < table.offset + table.elements();
  });
}

void GradientExchange::add_rows(bool whole) {
  for (const RowTable& table : rows_.layout.tables) {
    std::byte* const ids = rows_.data + table.ids_at;
    std::byte* const rows = rows_.data + table.rows_at;
    gather_lanes(ids, table.lane_id_bytes());
    gather_lanes(rows, table.lane_row_bytes());
    const AddedRows all = {.ids = reinterpret_cast<const int32_t*>(ids),
                           .rows = rows,
                           .dtype = table.dtype,
                           .count = shares_.lanes * table.lane_rows,
                           .columns = table.columns};
    if (whole) {
      LOCKSTEP_CHECK(!sums().packed);
      math_.add_rows(all, 0, table.elements(), sums().data + table.offset);
      continue;
    }
    for (int b = 0; b < static_cast<int>(gradients_.buckets.size()); ++b) {
      const Range mine = own_.part(b);
      const int64_t begin = std::max(mine.begin, table.offset),
                    end = std::min(mine.end, table.offset + table.elements());
      if (begin < end)
        math_.add_rows(
            all, begin - table.offset, end - table.offset, own_.at(b) + begin - mine.begin);
    }
  }
  for (int b = 0; b < static_cast<int>(gradients_.buckets.size()); ++b) {
    if (has_rows(b)) own_.measure(b);
  }
}

void GradientExchange::bucket_begins(int bucket) {
  uint64_t last = 0;  // exchange that read the memory which this bucket is about to overwrite
  int last_bucket = 0;
  for (int other = 0; other < static_cast<int>(last_exchange_.size()); ++other) {
    const uint64_t number = last_exchange_[static_cast<size_t>(other)];
    if (number <= last || !gradients_.overlap(bucket, other)) continue;
    last = number;
    last_bucket = other;
  }
  if (last > 0) complete_until(last, last_bucket);
  for (const Range& gap : gradients_.gaps[static_cast<size_t>(bucket)])
    math_.fill_zeros(gradients_.at(lane_gradients(), bucket, gap.begin), gap.size());
}

void GradientExchange::own_part_summed(int bucket) {
  if (!has_rows(bucket)) own_.measure(bucket);
  if (on_summed_) on_summed_(bucket);
}

void GradientExchange::reduce() { LOCKSTEP_CHECK(lane_ == (together() ? lanes_.count : turns_)); }

}  // namespace lockstep::collectives
