#pragma once
// The offset of each parameter in the flat buffers, and how the buffers are cut into buckets.

#include "runtime/plan/plan.h"

namespace lockstep {

inline bool overlap(const ParameterSlot& slot, const Range& range) {
  return slot.offset < range.end && slot.offset + slot.elements > range.begin;
}

// `bucket_elements`: max total number of elements of a block's parameters. A larger parameter gets
// a block of its own.
ParameterLayout make_layout(const Graph& training,
                            int lanes,
                            int64_t bucket_elements = int64_t{1} << 62);

// Cuts every block into buckets of about `bucket_elements`.
std::vector<Range> cut_buckets(const ParameterLayout& layout, int64_t bucket_elements);

// For each op, the buckets whose gradients are complete after it. Buckets appear in increasing
// order.
std::vector<std::vector<int>> bucket_schedule(const Graph& training,
                                              const ParameterLayout& layout,
                                              const std::vector<Range>& buckets);

// Lays out one lane's gradients so that a bucket's memory is free for others as soon as the next
// kExchangesInFlight buckets are complete. plan.training.buckets_after_op must be set.
void share_gradient_memory(const Graph& training, Plan& plan);

// The all-gathers of the training program: every bucket once, to its offset in the flat buffer,
// before the first op that reads it and before the backward pass.
void gather_in_place(const Graph& training,
                     const ParameterLayout& layout,
                     const std::vector<Range>& buckets,
                     size_t element_bytes,
                     ProgramPlan& program);
// The all-gathers of a program if no rank holds all parameters: each block that the ops read. A
// block is gathered again if other blocks have taken its memory since.
void gather_blocks(const Graph& graph,
                   const ParameterLayout& layout,
                   const std::vector<Range>& buckets,
                   size_t element_bytes,
                   ProgramPlan& program);

}  // namespace lockstep
