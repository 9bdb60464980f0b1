#pragma once
// The steps of make_plan(). Each depends only on the parts of the plan before it.

#include "runtime/plan/plan.h"

namespace lockstep::plan {

// Lays out one lane's gradients so that a bucket's memory is free for others as soon as the next
// kExchangesInFlight buckets are complete. program.buckets_after_op must be set.
void share_gradient_memory(const graph::Graph& training,
                           ParameterLayout& layout,
                           ProgramPlan& program);

// The all-gathers of the training program: every bucket once, to its offset in the flat buffer,
// before the first op that reads it and before the backward pass.
void gather_in_place(const graph::Graph& training,
                     const ParameterLayout& layout,
                     ProgramPlan& program);
// The all-gathers of a program if no rank holds all parameters: each block that the ops read. A
// block is gathered again if other blocks have taken its memory since.
void gather_blocks(const graph::Graph& graph, const ParameterLayout& layout, ProgramPlan& program);
// Which sums every rank gathers, to update all parameters, during the backward pass, and which ones
// the training program gathers in the next forward pass. Depends on sharding and layout.
TrafficPlan::SumGathers gather_sums(const graph::Graph& training,
                                    const Plan& plan,
                                    const PlanOptions& options,
                                    ProgramPlan& program);

// Lays out a graph that has the same ops and parameters as `full_graph`, in the same order, but
// shorter samples. All such programs share the flat buffers and the exchanges, so everything else
// in the plan (the buckets that an op finishes, the parameters that it waits for) is copied from
// `full_plan`. Graphs whose ops differ are a broken invariant.
ProgramPlan plan_length_bucket(const graph::Graph& graph,
                               const graph::Graph& full_graph,
                               const ProgramPlan& full_plan,
                               const WorkspaceBytes& workspace_bytes);

// Depends on sharding, layout, programs, and the sums that are gathered.
TrafficPlan plan_traffic(const graph::Graph& training,
                         const Plan& plan,
                         const PlanOptions& options);

// How many of a rank's lanes a device adds at once: the most, of 2, 4 and 8, for which the plan's
// memory on the device grows by at most a 12th over that for 2. Adding n lanes 2, 4 and 8 at a time
// reads and writes about 2 n, 1.5 n and 1.25 n gradients. Depends on everything else.
int lanes_at_once(const graph::Graph& training, const Plan& plan, const PlanOptions& options);

// Depends on everything else.
MemoryPlan plan_memory(const graph::Graph& training, const Plan& plan, const PlanOptions& options);

// An upper estimate of the device memory that the driver takes for the CUDA graphs of a step, if
// samples have so many lengths: see recorded_graphs.h. A driver takes 2.7 KB a node (a kernel, copy
// or exchange) on one GPU and 10.5 KB on another, by public measurements with drivers for CUDA 12.4
// and newer; older ones take several times as much.
size_t recorded_bytes(const graph::Graph& training, const Plan& plan, size_t lengths);

}  // namespace lockstep::plan
