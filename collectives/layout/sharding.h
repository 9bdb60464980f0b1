#pragma once
// Which rank owns which part of the flat buffers. Pure arithmetic, the same on every rank.
//
// The flat buffer is padded to a multiple of slices() * kSliceAlignment and cut into buckets, each
// a multiple of that too. A bucket is cut into equal parts, one for each rank; Topology::part_of()
// says which part a rank owns. If the number of ranks divides the lanes, there are as many slices
// as lanes, so the buffer is the same on any such number. A chunk of squares (exact_sum.h) is never
// split.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/layout/lane_tree.h"
#include "collectives/layout/topology.h"
#include "runtime/base/exact_sum.h"

namespace lockstep::collectives {

// In elements; 64 floats are four cache lines.
inline constexpr int64_t kSliceAlignment = 64;
static_assert(kSliceAlignment % kSquaresChunk == 0);

// The lanes of one rank. By default they are neighbours. If each lane is summed across the ranks by
// itself, a rank has every stride-th lane, so that the ranks run neighbouring lanes at the same
// time.
struct LocalLanes {
  int first = 0;
  int stride = 1;
  int count = 1;
  int operator[](int index) const { return first + index * stride; }
  bool operator==(const LocalLanes&) const = default;
};

// How a rank runs its lanes.
enum class LaneOrder {
  kInTurn,      // one after the other; the rank adds them up, then the ranks exchange their sums
  kTogether,    // at the same time, each with a buffer of its own; else the same
  kEachSummed,  // one after the other; each is summed across the ranks at once
};

// How the ranks share the lanes: as evenly as possible. There are at most as many ranks as units.
struct LaneShares {
  int lanes = 1;
  int ranks = 1;
  int unit = 1;  // a rank has whole units of so many lanes
  LaneOrder order = LaneOrder::kInTurn;
  // kInTurn: so many neighbouring lanes run at the same time, each with a buffer of its own.
  int lanes_per_pass = 1;
  int width = 2;  // see SumSchedule: 2, 4 or 8

  LocalLanes of(int rank) const;
  int most() const;  // lanes of the rank that has the most
  // For kEachSummed: the neighbouring lanes that the ranks run in turn number `turn`, of most(),
  // and one rank's share of them: one lane or none.
  LaneSum turn(int turn) const;
  LaneSum turn(int turn, int rank) const;
  // The buffers in which a rank adds up lanes; for kEachSummed, its part of each.
  SumSchedule schedule(int rank) const;
  int buffers() const;  // of the rank that needs the most
  // For kInTurn, by lane of a rank: the first of its lanes for which it does the same with the same
  // buffers. The last lane is like no other, because an exchange follows it; so is the first one if
  // it `begins` something.
  std::vector<int> lane_patterns(int rank, bool begins) const;
};

// Into how many slices a bucket can be cut.
int slices(int lanes, int ranks);

// Element range [begin, end) of the flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// `elements` rounded up so that they can be cut into `slices`.
int64_t padded_elements(int64_t elements, int slices);

// Cuts `part` into consecutive buckets of about `bucket_elements` each, and at least slices *
// kSliceAlignment. Both ends of `part` must be multiples of slices * kSliceAlignment.
std::vector<Range> make_buckets(const Range& part, int slices, int64_t bucket_elements);
// The number of elements of every bucket except the last.
int64_t bucket_length(int64_t bucket_elements, int slices);

// Part `part` of `parts` equal parts of `bucket`.
Range part_of(const Range& bucket, int part, int parts);

// Cuts `range` at those of the increasing `cuts` that lie inside it.
std::vector<Range> cut_range(const Range& range, const std::vector<int64_t>& cuts);

// Limits of the exchanges in flight at the same time: as many elements as kExchangesInFlight
// buckets of the largest size, and kMaxExchangesInFlight exchanges, because the communicator keeps
// state for each.
inline constexpr int kExchangesInFlight = 4;
inline constexpr int kMaxExchangesInFlight = 48;
// 25 MiB of floats.
inline constexpr int64_t kUsualBucketElements = int64_t{25} << 18;
enum class InFlightLimit {
  kUsual,  // smaller buckets may have as many elements in flight as usual ones would
  kSavesMemory,
  // A quarter of all elements at most: a gather follows each exchange, and begins when it ends.
  kGathersFollow,
};
// The max number of elements in all buckets whose exchanges are in flight at the same time. If an
// op completes more, `at_once`, up to twice as many, so that the next op does not wait for them.
int64_t exchanged_elements(const std::vector<Range>& buckets,
                           InFlightLimit limit,
                           int64_t at_once = 0);
// The all-gather of a bucket.
struct GatherItem {
  int bucket = 0;
  size_t offset = 0;  // in bytes, in the buffer for gathered data
  // The gather is not started before an item of the previous turn is needed: until then its memory
  // is in use by the turn before that one.
  int turn = 0;
  bool operator==(const GatherItem&) const = default;
};

// Gathers the buckets in `order` through a buffer of `memory_bytes`, which has room for at least
// two of the largest. The buffer has two halves: the buckets of one turn are gathered into one half
// while those of the turn before are read from the other.
std::vector<GatherItem> staged_gathers(const std::vector<Range>& buckets,
                                       std::span<const int> order,
                                       size_t element_bytes,
                                       size_t memory_bytes);

// Limits of the gathers in flight at the same time: as many elements as kGathersInFlight buckets of
// the largest size (at least kUsualBucketElements), and kMaxGathersInFlight gathers.
inline constexpr int kGathersInFlight = 3;
inline constexpr int kMaxGathersInFlight = 12;

// Elements of the longest bucket.
int64_t largest_bucket(const std::vector<Range>& buckets);

// Part `part` of every bucket, in order.
std::vector<Range> owned_ranges(const std::vector<Range>& buckets, int part, int parts);

// The floats of the ranges that a rank owns. Each element has an index in the flat buffer and one
// among the owned elements. Borrowed.
struct OwnedFloats {
  float* data = nullptr;
  bool packed = false;  // the owned ranges back to back; otherwise a flat buffer
  float* at(int64_t flat, int64_t local) const { return data + (packed ? local : flat); }
};

}  // namespace lockstep::collectives
