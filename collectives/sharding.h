#pragma once
// Who owns which part of the flat buffers: pure arithmetic, the same on every rank.
//
// The flat buffer is padded to a multiple of lanes * kSliceAlignment elements and cut into buckets
// of such multiples. A bucket is cut into `lanes` equal slices, and part p of W, which one rank
// owns (topology.h says which), is the lanes/W consecutive slices from p * lanes / W. So a slice is
// never split, whatever the number of ranks, and whatever is computed slice by slice has the same
// bits on any W. Nor is a chunk of squares ever split (exact_sum.h), whatever the buckets.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/topology.h"
#include "runtime/base/exact_sum.h"

namespace lockstep {

// Elements; 64 floats are four cache lines.
inline constexpr int64_t kSliceAlignment = 64;
static_assert(kSliceAlignment % kSquaresChunk == 0);

// The lanes of one rank: consecutive ones or, where every lane is summed across the ranks by
// itself, every stride-th: those that the ranks run at the same time are a subtree of the lanes'
// tree.
struct LocalLanes {
  int first = 0;
  int stride = 1;
  int count = 1;
  int operator[](int index) const { return first + index * stride; }
  bool operator==(const LocalLanes&) const = default;
};
LocalLanes local_lanes(int lanes, int ranks, int rank, bool each_across_ranks);

// Element range [begin, end) of the flat buffer.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// `elements` rounded up so that it can be cut for `lanes`.
int64_t padded_elements(int64_t elements, int lanes);

// Consecutive buckets that cover a part of the buffer whose ends are multiples of lanes *
// kSliceAlignment; each of about `bucket_elements`, at least one such multiple.
std::vector<Range> make_buckets(const Range& part, int lanes, int64_t bucket_elements);
// Elements of each bucket but the last.
int64_t bucket_length(int64_t bucket_elements, int lanes);

// Part `part` of `parts` of a bucket, or of a part of it.
Range part_of(const Range& bucket, int part, int parts);

// A range cut at those of the increasing `places` that lie in it.
std::vector<Range> cut_range(const Range& range, const std::vector<int64_t>& places);

// Gradient buffers that a rank needs to sum `local_lanes` lanes as a binary tree (see reducer.h),
// one after the other or all at once.
int gradient_buffers(int local_lanes, bool lanes_together = false);

// Buckets of the largest size whose exchange may be under way at a time, and of any size: the
// communicator keeps something of each.
inline constexpr int kExchangesInFlight = 4;
inline constexpr int kMostExchangesInFlight = 48;
// Of buckets: 25 MiB of floats. Of smaller ones as much is under way as of these, where memory is
// not to be saved.
inline constexpr int64_t kUsualBucketElements = int64_t{25} << 18;
// How many elements buckets have together whose exchange may be under way at a time.
int64_t exchanged_elements(const std::vector<Range>& buckets, bool saves_memory);
// Floats that a rank receives so many elements of buckets in.
int64_t staging_elements(int64_t elements, const Topology& topology);

// The all-gather of a bucket.
struct GatherItem {
  int bucket = 0;
  size_t offset = 0;  // bytes: where it begins in the memory for what is gathered
  // It is not begun before an item of the turn before is needed: until then others use its memory.
  int turn = 0;
  bool operator==(const GatherItem&) const = default;
};

// The first `count` buckets one after the other through `memory_bytes`, two of the longest or more:
// as many as half of it takes are on their way while those in the other half are read.
std::vector<GatherItem> staged_gathers(const std::vector<Range>& buckets,
                                       size_t count,
                                       size_t element_bytes,
                                       size_t memory_bytes);

// Buckets of parameters that may be on their way: so many of the largest or of the usual size, and
// of any size.
inline constexpr int kGathersInFlight = 3;
inline constexpr int kMostGathersInFlight = 12;

// Length of the longest bucket.
int64_t largest_bucket(const std::vector<Range>& buckets);

// One part of every bucket, in order.
std::vector<Range> owned_ranges(const std::vector<Range>& buckets, int part, int parts);

// Floats of the ranges that a rank owns, of which each element has a number in the flat buffer and
// one among the owned: where they lie. Borrowed.
struct OwnedFloats {
  float* data = nullptr;
  bool packed = false;  // the owned ranges one after the other; else a flat buffer
  float* at(int64_t flat, int64_t local) const { return data + (packed ? local : flat); }
};

}  // namespace lockstep
