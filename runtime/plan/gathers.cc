// When parameters that ranks own are all-gathered.
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/lifetimes.h"

namespace lockstep {
namespace {

// Which parameters ops read.
class ParameterReads {
 public:
  explicit ParameterReads(const Graph& graph) : number_of_tensor_(graph.tensors.size(), kNone) {
    for (size_t p = 0; p < graph.parameters.size(); ++p)
      number_of_tensor_[static_cast<size_t>(graph.parameters[p])] = p;
  }

  // Their numbers, ascending.
  std::vector<size_t> of(const Op& op) const {
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

// A block that is there from one op to another.
struct Visit {
  size_t block = 0;
  int needed_by = 0, last_op = 0;
};

// A block that is read again while no more than one other has come since stays.
std::vector<Visit> visits_of(const Graph& graph, const ParameterLayout& layout) {
  constexpr size_t kOthers = 1;
  struct LastUse {
    size_t visit = 0;
    size_t visits = 0;  // begun by then; 0: never used
  };
  const ParameterReads reads(graph);
  std::vector<LastUse> last(layout.blocks.size());
  std::vector<Visit> visits;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    for (size_t p : reads.of(graph.ops[op])) {
      const auto block = static_cast<size_t>(
          std::find_if(layout.blocks.begin(),
                       layout.blocks.end(),
                       [&](const Range& range) { return overlap(layout.slots[p], range); }) -
          layout.blocks.begin());
      LastUse& use = last[block];
      if (use.visits == 0 || visits.size() - use.visits > kOthers) {
        use.visit = visits.size();
        visits.push_back({block, static_cast<int>(op), 0});
      }
      use.visits = visits.size();
      visits[use.visit].last_op = static_cast<int>(op);
    }
  }
  return visits;
}

}  // namespace

void gather_in_place(const Graph& training,
                     const ParameterLayout& layout,
                     const std::vector<Range>& buckets,
                     size_t element_bytes,
                     ProgramPlan& program) {
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
  // Padding alone, or what only the update reads, is needed by nobody.
  for (size_t b = 0; b < buckets.size(); ++b) list(b);
  program.gathered_before_op.resize(training.ops.size(), program.gathers.size());
  program.gathered_before_op[training.forward_ops - 1] = program.gathers.size();
}

void gather_blocks(const Graph& graph,
                   const ParameterLayout& layout,
                   const std::vector<Range>& buckets,
                   size_t element_bytes,
                   ProgramPlan& program) {
  const std::vector<Visit> visits = visits_of(graph, layout);
  std::vector<Lifetime> lives;
  for (size_t v = 0; v < visits.size(); ++v)
    lives.push_back(
        {.bytes = static_cast<size_t>(layout.blocks[visits[v].block].size()) * element_bytes,
         .first_op = v == 0 ? 0 : visits[v - 1].needed_by,  // it is on its way from then on
         .last_op = visits[v].last_op});
  program.gathered_bytes = place_by_lifetime(lives);
  program.gathers_each_run = true;
  program.placed_before_op.resize(graph.ops.size());
  size_t visit = 0;
  for (size_t op = 0; op < graph.ops.size(); ++op) {
    for (; visit < visits.size() && visits[visit].needed_by == static_cast<int>(op); ++visit) {
      const Range& block = layout.blocks[visits[visit].block];
      for (size_t b = 0; b < buckets.size(); ++b) {
        if (buckets[b].begin < block.begin || buckets[b].end > block.end) continue;
        const auto before = static_cast<size_t>(buckets[b].begin - block.begin);
        program.gathers.push_back({static_cast<int>(b),
                                   lives[visit].offset + before * element_bytes,
                                   static_cast<int>(visit)});
      }
      for (size_t p = 0; p < layout.slots.size(); ++p) {
        const auto before = static_cast<size_t>(layout.slots[p].offset - block.begin);
        if (overlap(layout.slots[p], block))
          program.placed_before_op[op].push_back({p, lives[visit].offset + before * element_bytes});
      }
    }
    program.gathered_before_op.push_back(program.gathers.size());
  }
}

}  // namespace lockstep
