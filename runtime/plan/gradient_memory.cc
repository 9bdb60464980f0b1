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
// GradientExchange::bucket_begins(), which the executor calls before an op writes to a bucket for
// the first time (buckets_begun_by_op): it waits until every bucket that overlaps it has been
// exchanged.
//
// A reused buffer holds old numbers in the padding between parameters, where no op writes. These
// gaps (bucket_gaps) are filled with zeros before a bucket is written, because sums and norms read
// whole buckets.
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/plan/lifetimes.h"
#include "runtime/plan/moment_layout.h"
#include "runtime/plan/plan_parts.h"

namespace lockstep::plan {
namespace {

std::vector<collectives::Range> trained_blocks(const ParameterLayout& layout) {
  std::vector<collectives::Range> blocks;
  for (const collectives::Range& block : layout.blocks)
    if (block.begin < layout.trained()) blocks.push_back(block);
  return blocks;
}

// The first op that writes a gradient of the block.
int begun_by(const graph::Graph& training,
             const ParameterLayout& layout,
             const collectives::Range& block) {
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

}  // namespace

void share_gradient_memory(const graph::Graph& training,
                           ParameterLayout& layout,
                           ProgramPlan& program) {
  const std::vector<collectives::Range> blocks = trained_blocks(layout);
  const auto bucket_at = [&](int64_t begin) {
    const auto found =
        std::ranges::lower_bound(layout.buckets, begin, {}, &collectives::Range::begin);
    return static_cast<size_t>(found - layout.buckets.begin());
  };
  std::vector<int> ready(layout.buckets.size());
  for (size_t op = 0; op < training.ops.size(); ++op) {
    for (int bucket : program.buckets_after_op[op])
      ready[static_cast<size_t>(bucket)] = static_cast<int>(op);
  }
  program.buckets_begun_by_op.resize(training.ops.size());
  std::vector<Lifetime> lifetimes;
  for (const collectives::Range& block : blocks) {
    const int first_op = begun_by(training, layout, block);
    const size_t end = bucket_at(block.end), free_after = end - 1 + collectives::kExchangesInFlight;
    lifetimes.push_back({.bytes = static_cast<size_t>(block.size()) * sizeof(float),
                         .first_op = first_op,
                         .last_op = free_after < ready.size()
                                        ? ready[free_after]
                                        : static_cast<int>(training.ops.size())});
    for (size_t bucket = bucket_at(block.begin); bucket < end; ++bucket)
      program.buckets_begun_by_op[static_cast<size_t>(first_op)].push_back(
          static_cast<int>(bucket));
  }
  layout.gradient_elements = static_cast<int64_t>(place_by_lifetime(lifetimes) / sizeof(float));
  std::vector<collectives::Range> taken;
  for (const ParameterSlot& slot : layout.slots)
    taken.push_back({slot.offset, slot.offset + slot.elements});
  std::ranges::sort(taken, {}, &collectives::Range::begin);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const collectives::Range& block = blocks[i];
    const int64_t moved = static_cast<int64_t>(lifetimes[i].offset / sizeof(float)) - block.begin;
    for (size_t bucket = bucket_at(block.begin); bucket < bucket_at(block.end); ++bucket) {
      layout.bucket_offsets.push_back(moved + layout.buckets[bucket].begin);
      layout.bucket_gaps.push_back(outside(layout.buckets[bucket], taken));
    }
    for (ParameterSlot& slot : layout.slots) {
      if (overlap(slot, block)) slot.gradient_offset = moved + slot.offset;
    }
  }
}

}  // namespace lockstep::plan
