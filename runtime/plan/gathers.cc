// Schedules the all-gathers of parameters, and of the sums that update them.
//
// gather_in_place(), ZeRO stages 1 and 2: every rank has memory for all parameters. Each bucket is
// gathered once a step, in the order in which the forward pass first reads it. The schedule
// determines how many gathers must be complete before each op, so the last buckets still travel
// while the first layers compute.
//
// gather_blocks(), ZeRO stage 3: a rank has memory for a few blocks only. A block is resident from
// the op that first needs it to the op that last reads it; if at most one other block has arrived
// since its last use, it stays instead of being gathered again. The gather of a block starts when
// the block before it is needed (prefetching), so its memory is taken from that op on. Residencies
// get their offsets as activations do, by place_by_lifetime().
//
// gather_sums(), ZeRO stage 0: every rank updates all parameters from gathered sums. As in stages 1
// and 2 a bucket's sums are gathered, and its parameters updated, before the first op of the next
// forward pass that reads it. What the first op reads is gathered in the backward pass, as soon as
// it is summed: no op would hide it.
//
// Invariant: a gather of `turn` t may only begin once an op needs turn t - 1 (GatherItem), because
// until then other residencies use its memory. All ranks compute the same schedule, so that they
// gather the same buckets in the same order.
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/plan/lifetimes.h"
#include "runtime/plan/plan_parts.h"

namespace lockstep::plan {
namespace {

// Finds the parameters that an op reads.
class ParameterReads {
 public:
  explicit ParameterReads(const graph::Graph& graph)
      : number_of_tensor_(graph.tensors.size(), kNone) {
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      number_of_tensor_[static_cast<size_t>(graph.parameters[p])] = p;
  }

  // The indices of the op's parameters, ascending.
  std::vector<size_t> of(const graph::Op& op) const {
    std::vector<size_t> read;
    for (const TensorId input : op.inputs) {
      const size_t number =
          input == kNoTensor ? kNone : number_of_tensor_[static_cast<size_t>(input)];
      if (number != kNone) read.push_back(number);
    }
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    return read;
  }

 private:
  static constexpr size_t kNone = static_cast<size_t>(-1);
  std::vector<size_t> number_of_tensor_;
};

// A stay of a block in memory, from one op to another.
struct Residency {
  size_t block = 0;
  int needed_by = 0, last_op = 0;
};

// A block that is read again stays in memory if at most kOthers blocks have arrived since.
std::vector<Residency> residencies_of(const graph::Graph& graph, const ParameterLayout& layout) {
  constexpr size_t kOthers = 1;
  struct LastUse {
    size_t residency = 0;
    size_t residencies = 0;  // residencies begun by then; 0: never used
  };
  const ParameterReads reads(graph);
  std::vector<LastUse> last(layout.blocks.size());
  std::vector<Residency> residencies;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    for (size_t p : reads.of(graph.ops[op])) {
      const auto block = static_cast<size_t>(std::find_if(layout.blocks.begin(),
                                                          layout.blocks.end(),
                                                          [&](const collectives::Range& range) {
                                                            return overlap(layout.slots[p], range);
                                                          }) -
                                             layout.blocks.begin());
      LastUse& use = last[block];
      if (use.residencies == 0 || residencies.size() - use.residencies > kOthers) {
        use.residency = residencies.size();
        residencies.push_back({block, static_cast<int>(op), 0});
      }
      use.residencies = residencies.size();
      residencies[use.residency].last_op = static_cast<int>(op);
    }
  }
  return residencies;
}

// The buckets in the order in which the forward pass first reads them, and how many of them must be
// there before each op.
struct Uses {
  std::vector<int> order;
  std::vector<size_t> before_op;
};

// Without the buckets that are listed already.
Uses uses_in_forward(const graph::Graph& training,
                     const ParameterLayout& layout,
                     std::vector<bool> listed) {
  Uses uses;
  const auto list = [&](size_t bucket) {
    if (listed[bucket]) return;
    listed[bucket] = true;
    uses.order.push_back(static_cast<int>(bucket));
  };
  const ParameterReads reads(training);
  for (size_t op = 0; op < training.forward_ops; ++op) {
    for (size_t p : reads.of(training.ops[op])) {
      for (size_t b = 0; b < listed.size(); ++b) {
        if (overlap(layout.slots[p], layout.buckets[b])) list(b);
      }
    }
    uses.before_op.push_back(uses.order.size());
  }
  // No op reads the remaining buckets: padding only, or parameters that only the update reads.
  for (size_t b = 0; b < listed.size(); ++b) list(b);
  uses.before_op.resize(training.ops.size(), uses.order.size());
  uses.before_op[training.forward_ops - 1] = uses.order.size();
  return uses;
}

// By bucket: whether the first op with parameters reads it, or rows are added to it (row_layout.h).
std::vector<bool> read_first(const graph::Graph& training, const ParameterLayout& layout) {
  std::vector<bool> first(layout.buckets.size());
  const auto add = [&](size_t parameter) {
    for (size_t b = 0; b < first.size(); ++b)
      if (overlap(layout.slots[parameter], layout.buckets[b])) first[b] = true;
  };
  const ParameterReads reads(training);
  for (const graph::Op& op : training.ops) {
    const std::vector<size_t> read = reads.of(op);
    std::ranges::for_each(read, add);
    if (!read.empty()) break;
  }
  for (const graph::RowGradient& gradient : graph::row_gradients(training))
    add(static_cast<size_t>(std::ranges::find(training.parameters, gradient.table) -
                            training.parameters.begin()));
  return first;
}

// At the bucket's offset in a flat buffer of this type.
collectives::GatherItem in_place(const ParameterLayout& layout, int bucket, DType type) {
  const auto begin = static_cast<size_t>(layout.buckets[static_cast<size_t>(bucket)].begin);
  return {bucket, begin * size_of(type)};
}

}  // namespace

void gather_in_place(const graph::Graph& training,
                     const ParameterLayout& layout,
                     ProgramPlan& program) {
  const Uses uses = uses_in_forward(training, layout, std::vector<bool>(layout.buckets.size()));
  for (const int bucket : uses.order)
    program.gathers.push_back(in_place(layout, bucket, layout.compute));
  program.gathered_before_op = uses.before_op;
}

TrafficPlan::SumGathers gather_sums(const graph::Graph& training,
                                    const Plan& plan,
                                    const PlanOptions& options,
                                    ProgramPlan& program) {
  TrafficPlan::SumGathers sums;
  if (plan.sharding.replicated_sums() || options.power_sgd > 0) return sums;
  const ParameterLayout& layout = plan.layout;
  const std::vector<collectives::Range>& buckets = layout.buckets;
  const bool sends = plan.sharding.topology.ranks() > 1;
  // The buckets of running statistics, which come last, are never rounded.
  const size_t trained = layout.gradient_buckets();
  const size_t rounded = sends && options.wire != DType::kF32 ? trained : 0;
  if (rounded > 0) {
    // Each half of the buffer holds a turn: two buckets, or all.
    const int64_t bucket =
        std::max(collectives::largest_bucket(buckets), collectives::kUsualBucketElements);
    const int64_t half = std::min(2 * bucket, buckets[rounded - 1].end);
    sums.staging_bytes = 2 * static_cast<size_t>(half) * size_of(options.wire);
  }
  const auto items_of = [&](const std::vector<int>& order, bool staged) {
    if (staged)
      return collectives::staged_gathers(buckets, order, size_of(options.wire), sums.staging_bytes);
    std::vector<collectives::GatherItem> items;
    for (const int bucket : order) items.push_back(in_place(layout, bucket, DType::kF32));
    return items;
  };

  std::vector<bool> at_once(buckets.size(), true);
  if (sends && options.optimizer.by_bucket && !options.device && !options.evaluation_only) {
    at_once = read_first(training, layout);
    std::fill(at_once.begin() + static_cast<std::ptrdiff_t>(trained), at_once.end(), true);
    const Uses uses = uses_in_forward(training, layout, at_once);
    program.gathers = items_of(uses.order, rounded > 0);
    program.gathered_before_op = uses.before_op;
  }
  std::vector<int> as_wire, as_floats;
  for (size_t b = 0; b < buckets.size(); ++b)
    if (at_once[b]) (b < rounded ? as_wire : as_floats).push_back(static_cast<int>(b));
  sums.rounded = items_of(as_wire, /*staged=*/true);
  sums.floats = items_of(as_floats, /*staged=*/false);
  return sums;
}

void gather_blocks(const graph::Graph& graph, const ParameterLayout& layout, ProgramPlan& program) {
  const std::vector<collectives::Range> buckets = layout.all_buckets();
  const size_t element_bytes = size_of(layout.compute);
  const std::vector<Residency> residencies = residencies_of(graph, layout);
  std::vector<Lifetime> lifetimes;
  for (size_t v = 0; v < residencies.size(); ++v)
    lifetimes.push_back(
        {.bytes = static_cast<size_t>(layout.blocks[residencies[v].block].size()) * element_bytes,
         .first_op =
             v == 0 ? 0 : residencies[v - 1].needed_by,  // its gather is in flight from then on
         .last_op = residencies[v].last_op});
  program.gathered_bytes = place_by_lifetime(lifetimes);
  program.gathers_each_run = true;
  program.placed_before_op.resize(graph.ops.size());
  size_t residency = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    for (;
         residency < residencies.size() && residencies[residency].needed_by == static_cast<int>(op);
         ++residency) {
      const collectives::Range& block = layout.blocks[residencies[residency].block];
      for (size_t b = 0; b < buckets.size(); ++b) {
        if (buckets[b].begin < block.begin || buckets[b].end > block.end) continue;
        const auto before = static_cast<size_t>(buckets[b].begin - block.begin);
        program.gathers.push_back({static_cast<int>(b),
                                   lifetimes[residency].offset + before * element_bytes,
                                   static_cast<int>(residency)});
      }
      for (size_t p = 0; p < layout.slots.size(); ++p) {
        const auto before = static_cast<size_t>(layout.slots[p].offset - block.begin);
        if (overlap(layout.slots[p], block))
          program.placed_before_op[op].push_back(
              {p, lifetimes[residency].offset + before * element_bytes});
      }
    }
    program.gathered_before_op.push_back(program.gathers.size());
  }
}

}  // namespace lockstep::plan
