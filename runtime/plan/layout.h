#pragma once
// Where each parameter lies in the flat buffers, and which belong to a bucket.

#include "runtime/plan/plan.h"

namespace lockstep {

inline bool overlap(const ParameterSlot& slot, const Range& range) {
  return slot.offset < range.end && slot.offset + slot.elements > range.begin;
}

// `bucket_elements`: the most that the parameters of a block have together, unless it is one larger
// parameter.
ParameterLayout make_layout(const Graph& training,
                            int lanes,
                            int64_t bucket_elements = int64_t{1} << 62);

// Every block cut into buckets of at most about so many elements.
std::vector<Range> cut_buckets(const ParameterLayout& layout, int64_t bucket_elements);

// For each op, the buckets whose gradients are complete once it has run; buckets appear in
// increasing order.
std::vector<std::vector<int>> bucket_schedule(const Graph& training,
                                              const ParameterLayout& layout,
                                              const std::vector<Range>& buckets);

// Lays out one lane's gradients so that a bucket's memory is free for others once so many further
// ones as may be under way are complete. Needs the program's schedule of the buckets.
void share_gradient_memory(const Graph& training, Plan& plan);

// What the training program gathers: every bucket once, to its place, before the first op that
// reads it and before the backward pass.
void gather_in_place(const Graph& training,
                     const ParameterLayout& layout,
                     const std::vector<Range>& buckets,
                     size_t element_bytes,
                     ProgramPlan& program);
// What a program gathers where no rank has all: the blocks that it reads, whenever it reads them
// again after others.
void gather_blocks(const Graph& graph,
                   const ParameterLayout& layout,
                   const std::vector<Range>& buckets,
                   size_t element_bytes,
                   ProgramPlan& program);

}  // namespace lockstep
