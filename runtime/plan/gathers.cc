// Schedules the all-gathers of parameters.
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
// Invariant: a gather of `turn` t may only begin once an op needs turn t - 1 (GatherItem), because
// until then other residencies use its memory. All ranks compute the same schedule, so that they
// gather the same buckets in the same order.
#include <algorithm>

#include "runtime/base/error.h"
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

}  // namespace

void gather_in_place(const graph::Graph& training,
                     const ParameterLayout& layout,
                     ProgramPlan& program) {
  const std::vector<collectives::Range>& buckets = layout.buckets;
  const size_t element_bytes = size_of(layout.compute);
  std::vector<bool> listed(buckets.size(), false);
  const auto list = [&](size_t bucket) {
    if (listed[bucket]) return;
    listed[bucket] = true;
    program.gathers.push_back(
        {static_cast<int>(bucket), static_cast<size_t>(buckets[bucket].begin) * element_bytes, 0});
  };
  const ParameterReads reads(training);
  for (size_t op = 0; op < training.forward_ops; ++op) {
    for (size_t p : reads.of(training.ops[op])) {
      for (size_t b = 0; b < buckets.size(); ++b) {
        if (overlap(layout.slots[p], buckets[b])) list(b);
      }
    }
    program.gathered_before_op.push_back(program.gathers.size());
  }
  // No op reads the remaining buckets: padding only, or parameters that only the update reads.
  for (size_t b = 0; b < buckets.size(); ++b) list(b);
  program.gathered_before_op.resize(training.ops.size(), program.gathers.size());
  program.gathered_before_op[training.forward_ops - 1] = program.gathers.size();
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
