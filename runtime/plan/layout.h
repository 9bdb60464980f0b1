#pragma once

#include "runtime/plan/plan.h"

namespace lockstep {

ParameterLayout make_layout(const Graph& training, int lanes);

// For each op, the buckets whose gradients are complete once it has run; buckets appear in
// increasing order.
std::vector<std::vector<int>> bucket_schedule(const Graph& training,
                                              const ParameterLayout& layout,
                                              const std::vector<Range>& buckets);

// For each op, the buckets that hold parameters which it is the first to read; every bucket appears
// once, before the backward pass.
std::vector<std::vector<int>> gather_schedule(const Graph& training,
                                              const ParameterLayout& layout,
                                              const std::vector<Range>& buckets);

}  // namespace lockstep
