#include "collectives/layout/sharding.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace lockstep::collectives {

LocalLanes LaneShares::of(int rank) const {
  if (order == LaneOrder::kEachSummed) return {rank, ranks, (lanes - rank + ranks - 1) / ranks};
  const auto begin = [&](int64_t r) { return static_cast<int>(lanes / unit * r / ranks) * unit; };
  return {begin(rank), 1, begin(rank + 1) - begin(rank)};
}

int LaneShares::most() const { return (lanes / unit + ranks - 1) / ranks * unit; }

LaneSum LaneShares::turn(int turn) const {
  const int first = turn * ranks;
  return {first, std::min(ranks, lanes - first)};
}

LaneSum LaneShares::turn(int turn, int rank) const {
  const LaneSum all = this->turn(turn);
  const int lane = std::min(all.first + rank, all.end());
  return {lane, lane < all.end() ? 1 : 0};
}

SumSchedule LaneShares::schedule(int rank) const {
  std::vector<std::vector<LaneSum>> batches;
  if (order == LaneOrder::kEachSummed) {
    for (int t = 0; t < most(); ++t) batches.push_back(largest_sums(turn(t), lanes));
    return SumSchedule(batches, lanes, width);
  }
  const LocalLanes local = of(rank);
  for (int i = 0; i < local.count; ++i) {
    if (i == 0 || (order == LaneOrder::kInTurn && i % lanes_per_pass == 0)) batches.emplace_back();
    batches.back().push_back({local[i], 1});
  }
  // Lanes that run together have a buffer each in any case.
  constexpr int kWidest = 8;
  return SumSchedule(batches, lanes, order == LaneOrder::kTogether ? kWidest : width);
}

int LaneShares::buffers() const {
  int most = 1;
  for (int rank = 0; rank < (order == LaneOrder::kEachSummed ? 1 : ranks); ++rank)
    most = std::max(most, schedule(rank).buffers());
  return most;
}

std::vector<int> LaneShares::lane_patterns(int rank, bool begins) const {
  LOCKSTEP_CHECK(order == LaneOrder::kInTurn && lanes_per_pass == 1);
  const SumSchedule schedule = this->schedule(rank);
  const int count = static_cast<int>(schedule.size());
  std::vector<int> patterns;
  for (int lane = 0; lane < count; ++lane) {
    int first = lane + 1 == count ? lane : begins ? std::min(lane, 1) : 0;
    while (first < lane &&
           !schedule[static_cast<size_t>(first)].is_like(schedule[static_cast<size_t>(lane)]))
      ++first;
    patterns.push_back(first);
  }
  return patterns;
}

int slices(int lanes, int ranks) { return lanes % ranks == 0 ? lanes : ranks; }

int64_t padded_elements(int64_t elements, int slices) {
  const int64_t unit = slices * kSliceAlignment;
  return (elements + unit - 1) / unit * unit;
}

int64_t bucket_length(int64_t bucket_elements, int slices) {
  const int64_t unit = slices * kSliceAlignment;
  return std::max<int64_t>(bucket_elements / unit, 1) * unit;
}

std::vector<Range> make_buckets(const Range& part, int slices, int64_t bucket_elements) {
  const int64_t unit = slices * kSliceAlignment;
  LOCKSTEP_CHECK(part.begin % unit == 0 && part.end % unit == 0);
  const int64_t step = bucket_length(bucket_elements, slices);
  std::vector<Range> buckets;
  for (int64_t begin = part.begin; begin < part.end; begin += step)
    buckets.push_back({begin, std::min(begin + step, part.end)});
  return buckets;
}

Range part_of(const Range& bucket, int part, int parts) {
  const int64_t length = bucket.size() / parts;
  return {bucket.begin + part * length, bucket.begin + (part + 1) * length};
}

std::vector<Range> cut_range(const Range& range, const std::vector<int64_t>& cuts) {
  std::vector<Range> pieces;
  int64_t begin = range.begin;
  for (auto cut = std::ranges::upper_bound(cuts, begin); cut != cuts.end() && *cut < range.end;
       ++cut) {
    pieces.push_back({begin, *cut});
    begin = *cut;
  }
  pieces.push_back({begin, range.end});
  return pieces;
}

int64_t largest_bucket(const std::vector<Range>& buckets) {
  int64_t largest = 0;
  for (const Range& bucket : buckets) largest = std::max(largest, bucket.size());
  return largest;
}

std::vector<GatherItem> staged_gathers(const std::vector<Range>& buckets,
                                       std::span<const int> order,
                                       size_t element_bytes,
                                       size_t memory_bytes) {
  const size_t half = memory_bytes / 2;
  std::vector<GatherItem> items;
  int turn = 0;
  size_t taken = 0;  // in this turn's half
  for (const int bucket : order) {
    const size_t bytes =
        static_cast<size_t>(buckets[static_cast<size_t>(bucket)].size()) * element_bytes;
    LOCKSTEP_CHECK(bytes <= half);
    if (taken + bytes > half) {
      ++turn;
      taken = 0;
    }
    items.push_back({bucket, static_cast<size_t>(turn % 2) * half + taken, turn});
    taken += bytes;
  }
  return items;
}

int64_t exchanged_elements(const std::vector<Range>& buckets,
                           InFlightLimit limit,
                           int64_t at_once) {
  const int64_t largest = largest_bucket(buckets),
                bucket = limit == InFlightLimit::kSavesMemory
                             ? largest
                             : std::max(largest, kUsualBucketElements);
  int64_t most = 0;
  for (const Range& b : buckets) most += b.size();
  int64_t usual = std::min(kExchangesInFlight * bucket, most);
  if (limit == InFlightLimit::kGathersFollow) usual = std::min(usual, std::max(most / 4, largest));
  return std::min(std::max(usual, std::min(at_once, 2 * usual)), kMaxExchangesInFlight * largest);
}

std::vector<Range> owned_ranges(const std::vector<Range>& buckets, int part, int parts) {
  std::vector<Range> ranges;
  for (const Range& bucket : buckets) ranges.push_back(part_of(bucket, part, parts));
  return ranges;
}

}  // namespace lockstep::collectives
