// Memory for one lane's gradients if buckets share it (ZeRO stages 2 and 3).
//
// A bucket is summed across the ranks as soon as it is complete, and the rank then keeps only its
// part of the sum, in another buffer. So the bucket's memory is free once its exchange is done. As
// kExchangesInFlight exchanges may be in flight, bucket b is taken to be exchanged when bucket
// b + kExchangesInFlight is complete. A block's gradients therefore live from the first op that
// writes one of them to the op that completes that later bucket, and place_by_lifetime() packs the
// blocks. The last buckets live to the end of the backward pass.
//
// These lifetimes only keep the backward pass from waiting. What makes reuse correct is
// Reducer::bucket_begins(), which the executor calls before an op writes to a bucket for the first
// time (buckets_begun_by_op): it waits until every bucket that overlaps it has been exchanged.
//
// A reused buffer holds old numbers in the padding between parameters, where no op writes. These
// gaps (bucket_gaps) are filled with zeros before a bucket is written, because sums and norms read
// whole buckets.
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/lifetimes.h"

namespace lockstep {
namespace {

std::vector<Range> trained_blocks(const ParameterLayout& layout) {
  std::vector<Range> blocks;
  for (const Range& block : layout.blocks)
    if (block.begin < layout.trained()) blocks.push_back(block);
  return blocks;
}

// The buckets [first, end) of a block.
struct BlockBuckets {
  size_t first = 0, end = 0;
};

std::vector<BlockBuckets> buckets_of_blocks(const Plan& plan) {
  std::vector<BlockBuckets> of_blocks;
  size_t bucket = 0;
  for (const Range& block : trained_blocks(plan.layout)) {
    BlockBuckets range = {bucket, bucket};
    while (range.end < plan.buckets.size() && plan.buckets[range.end].begin < block.end)
      ++range.end;
    bucket = range.end;
    of_blocks.push_back(range);
  }
  LOCKSTEP_CHECK(bucket == plan.buckets.size());
  return of_blocks;
}

// The first op that writes a gradient of the block.
int begun_by(const Graph& training, const ParameterLayout& layout, const Range& block) {
  for (size_t i = 0; i < training.ops.size(); ++i) {
    for (TensorId output : training.ops[i].outputs) {
      if (output == kNoTensor) continue;
      for (size_t p = 0; p < layout.slots.size(); ++p) {
        if (training[training.parameters[p]].gradient == output && overlap(layout.slots[p], block))
          return static_cast<int>(i);
      }
    }
  }
  LOCKSTEP_CHECK(false, "nothing writes the gradients from element {} on ", block.begin);
  return 0;
}

// The parts of a range that no parameter occupies.
std::vector<Range> gaps_of(const ParameterLayout& layout, const Range& range) {
  std::vector<Range> taken;
  for (const ParameterSlot& slot : layout.slots) {
    if (overlap(slot, range))
      taken.push_back(
          {std::max(slot.offset, range.begin), std::min(slot.offset + slot.elements, range.end)});
  }
  std::sort(
      taken.begin(), taken.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  taken.push_back({range.end, range.end});
  std::vector<Range> gaps;
  int64_t at = range.begin;
  for (const Range& part : taken) {
    if (part.begin > at) gaps.push_back({at, part.begin});
    at = part.end;
  }
  return gaps;
}

}  // namespace

void share_gradient_memory(const Graph& training, Plan& plan) {
  ParameterLayout& layout = plan.layout;
  const std::vector<Range> blocks = trained_blocks(layout);
  const std::vector<BlockBuckets> of_blocks = buckets_of_blocks(plan);
  std::vector<int> ready(plan.buckets.size());
  for (size_t op = 0; op < training.ops.size(); ++op) {
    for (int bucket : plan.training.buckets_after_op[op])
      ready[static_cast<size_t>(bucket)] = static_cast<int>(op);
  }
  plan.training.buckets_begun_by_op.resize(training.ops.size());
  std::vector<Lifetime> lifetimes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const int first_op = begun_by(training, layout, blocks[i]);
    const size_t free_after = of_blocks[i].end - 1 + kExchangesInFlight;
    lifetimes.push_back({.bytes = static_cast<size_t>(blocks[i].size()) * sizeof(float),
                         .first_op = first_op,
                         .last_op = free_after < ready.size()
                                        ? ready[free_after]
                                        : static_cast<int>(training.ops.size())});
    for (size_t bucket = of_blocks[i].first; bucket < of_blocks[i].end; ++bucket)
      plan.training.buckets_begun_by_op[static_cast<size_t>(first_op)].push_back(
          static_cast<int>(bucket));
  }
  plan.gradient_elements = static_cast<int64_t>(place_by_lifetime(lifetimes) / sizeof(float));
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const Range& block = blocks[i];
    const auto offset = static_cast<int64_t>(lifetimes[i].offset / sizeof(float));
    for (size_t bucket = of_blocks[i].first; bucket < of_blocks[i].end; ++bucket) {
      plan.bucket_offsets.push_back(offset + plan.buckets[bucket].begin - block.begin);
      plan.bucket_gaps.push_back(gaps_of(layout, plan.buckets[bucket]));
    }
    for (ParameterSlot& slot : layout.slots) {
      if (overlap(slot, block)) slot.gradient_offset = offset + slot.offset - block.begin;
    }
  }
}

}  // namespace lockstep
