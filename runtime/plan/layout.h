#pragma once

#include "runtime/plan/plan.h"

namespace lockstep {

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

// Lays out one lane's gradients (bucket_offsets, bucket_gaps, gradient_elements, the slots'
// gradient_offset and the training program's buckets_begun_by_op). Where `shared`, a bucket's
// memory is free for others once so many further ones as may be under way are complete; else all
// lie as in the flat buffer. Needs the program's schedule of the buckets.
void lay_out_gradients(const Graph& training, bool shared, Plan& plan);

// For each op, the buckets that hold parameters which it is the first to read; every bucket appears
// once, before the backward pass.
std::vector<std::vector<int>> gather_schedule(const Graph& training,
                                              const ParameterLayout& layout,
                                              const std::vector<Range>& buckets);

}  // namespace lockstep
