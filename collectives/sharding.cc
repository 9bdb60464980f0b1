#include "collectives/sharding.h"

#include <algorithm>
#include <bit>

#include "runtime/base/error.h"

namespace lockstep {

LocalLanes local_lanes(int lanes, int ranks, int rank, bool each_across_ranks) {
  const int count = lanes / ranks;
  return each_across_ranks ? LocalLanes{rank, ranks, count} : LocalLanes{rank * count, 1, count};
}

int64_t padded_elements(int64_t elements, int lanes) {
  const int64_t unit = lanes * kSliceAlignment;
  return (elements + unit - 1) / unit * unit;
}

int64_t bucket_length(int64_t bucket_elements, int lanes) {
  const int64_t unit = lanes * kSliceAlignment;
  return std::max<int64_t>(bucket_elements / unit, 1) * unit;
}

std::vector<Range> make_buckets(const Range& part, int lanes, int64_t bucket_elements) {
  const int64_t unit = lanes * kSliceAlignment;
  LOCKSTEP_CHECK(part.begin % unit == 0 && part.end % unit == 0);
  const int64_t step = bucket_length(bucket_elements, lanes);
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

int gradient_buffers(int local_lanes, bool interleaved_lanes) {
  return interleaved_lanes ? local_lanes : std::bit_width(static_cast<unsigned>(local_lanes));
}

int64_t largest_bucket(const std::vector<Range>& buckets) {
  int64_t largest = 0;
  for (const Range& bucket : buckets) largest = std::max(largest, bucket.size());
  return largest;
}

std::vector<GatherItem> staged_gathers(const std::vector<Range>& buckets,
                                       size_t count,
                                       size_t element_bytes,
                                       size_t memory_bytes) {
  const size_t half = memory_bytes / 2;
  std::vector<GatherItem> items;
  int turn = 0;
  size_t taken = 0;  // in this turn's half
  for (size_t b = 0; b < count; ++b) {
    const size_t bytes = static_cast<size_t>(buckets[b].size()) * element_bytes;
    LOCKSTEP_CHECK(bytes <= half);
    if (taken + bytes > half) {
      ++turn;
      taken = 0;
    }
    items.push_back({static_cast<int>(b), static_cast<size_t>(turn % 2) * half + taken, turn});
    taken += bytes;
  }
  return items;
}

int64_t exchanged_elements(const std::vector<Range>& buckets, bool saves_memory) {
  const int64_t largest = largest_bucket(buckets),
                bucket = saves_memory ? largest : std::max(largest, kUsualBucketElements);
  int64_t all = 0;
  for (const Range& b : buckets) all += b.size();
  return std::min({kExchangesInFlight * bucket, kMaxExchangesInFlight * largest, all});
}

int64_t staging_elements(int64_t elements, const Topology& topology) {
  if (topology.shares_memory) return topology.nodes == 1 ? 0 : elements / topology.per_node;
  return topology.ranks() == 1 ? 0 : elements;
}

std::vector<Range> owned_ranges(const std::vector<Range>& buckets, int part, int parts) {
  std::vector<Range> ranges;
  for (const Range& bucket : buckets) ranges.push_back(part_of(bucket, part, parts));
  return ranges;
}

}  // namespace lockstep
