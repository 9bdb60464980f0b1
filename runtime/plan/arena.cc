// Packs activations and workspaces into one arena, as a register allocator packs variables into
// registers: tensors that are never in use at the same time share bytes.
//
// 1. Lifetimes. A tensor lives from the op that first writes it through the last op that reads or
//    writes it. The graph's result and row gradients live to the end, a workspace during its op.
// 2. In place. If the op's schema allows output k to overwrite input j, and the op is the last to
//    use the input, both tensors share one block, whose lifetime is extended. An input may be taken
//    by one output only, and not if the op reads it twice.
// 3. Offsets. place_by_lifetime() in lifetimes.cc packs the blocks.
//
//    op         0    1    2    3
//    a          [=========]            written by op 0, last read by op 1
//    b               [=========]       op 1's output: overlaps a, so it lies beside it
//    c                    [=========]  may take a's bytes; in place of b if op 2 allows it
//
// Invariant: two blocks with a common op in [first_op, last_op] have disjoint bytes. So an op may
// write its outputs at any time while it runs, and ops must run in the graph's order. Parameters,
// gradients, inputs, states and constants are not in the arena.
#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/graph/ops/embedding.h"
#include "runtime/graph/schema.h"
#include "runtime/plan/lifetimes.h"
#include "runtime/plan/program_plan.h"

namespace lockstep::plan {
namespace {

constexpr size_t kBlockAlignment = 256;  // bytes: preferred by GPU libraries, and whole cache lines

bool in_arena(const graph::Tensor& tensor) {
  return tensor.role == graph::Role::kActivation || tensor.role == graph::Role::kResult;
}

size_t aligned(size_t bytes) {
  return (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
}

// Makes the blocks of the tensors; an in-place output joins the block of its input. Returns the
// index of each tensor's block, -1 if it has none.
std::vector<int> make_blocks(const graph::Graph& graph,
                             size_t lanes,
                             std::vector<Lifetime>& blocks) {
  std::vector<int> last_use(graph.tensors.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const auto use = [&](TensorId id) {
      if (id != kNoTensor) last_use[static_cast<size_t>(id)] = static_cast<int>(i);
    };
    std::ranges::for_each(graph.ops[i].inputs, use);
    std::ranges::for_each(graph.ops[i].outputs, use);
  }
  const auto keep = [&](TensorId id) {
    if (id != kNoTensor) last_use[static_cast<size_t>(id)] = static_cast<int>(graph.ops.size());
  };
  keep(graph.result);
  for (const graph::RowGradient& rows : graph::row_gradients(graph)) {
    keep(rows.ids);
    keep(rows.rows);
  }

  std::vector<int> block_of(graph.tensors.size(), -1);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const graph::Op& op = graph.ops[i];
    const int now = static_cast<int>(i);
    std::vector<bool> taken(op.inputs.size(), false);
    for (size_t k = 0; k < op.outputs.size(); ++k) {
      const TensorId output = op.outputs.at(k);
      if (output == kNoTensor || !in_arena(graph[output])) continue;
      int& block = block_of[static_cast<size_t>(output)];
      if (block >= 0) continue;
      for (const auto& [out, in] : graph::schema_of(op.kind).in_place) {
        const TensorId input = op.inputs[in];
        if (out.index() != k || input == kNoTensor || taken[in.index()]) continue;
        if (graph[input].role != graph::Role::kActivation) continue;
        if (last_use[static_cast<size_t>(input)] != now ||
            graph[input].dtype != graph[output].dtype ||
            graph[input].bytes() != graph[output].bytes())
          continue;
        // If the same tensor is two inputs of the op, it is still being read.
        if (std::count(op.inputs.begin(), op.inputs.end(), input) > 1) continue;
        block = block_of[static_cast<size_t>(input)];
        taken[in.index()] = true;
        break;
      }
      if (block < 0) {
        block = static_cast<int>(blocks.size());
        blocks.push_back({lanes * ProgramPlan::lane_stride(graph[output]), now, now});
      }
      Lifetime& storage = blocks[static_cast<size_t>(block)];
      storage.last_op = std::max(storage.last_op, last_use[static_cast<size_t>(output)]);
    }
  }
  return block_of;
}

// Lays out the tensors of a role one after the other.
void lay_out(const graph::Graph& graph,
             graph::Role role,
             std::vector<PlacedTensor>& placed,
             size_t& bytes) {
  for (size_t id = 0; id < graph.tensors.size(); ++id) {
    if (graph.tensors[id].role != role) continue;
    placed.push_back({static_cast<TensorId>(id), bytes});
    bytes += aligned(graph.tensors[id].bytes());
  }
}

}  // namespace

size_t ProgramPlan::lane_stride(const graph::Tensor& tensor) { return aligned(tensor.bytes()); }

bool runs_jointly(const graph::Graph& graph, const graph::Graph& joint, size_t op, int lanes) {
  const graph::Op &own = graph.ops[op], &other = joint.ops[op];
  LOCKSTEP_CHECK(other.kind == own.kind && other.inputs == own.inputs &&
                 other.outputs == own.outputs);
  const auto is_joint = [&](TensorId id) {
    if (id == kNoTensor) return true;
    const graph::Tensor& tensor = graph[id];
    switch (tensor.role) {
      case graph::Role::kParameter:
      case graph::Role::kParameterGradient:
      case graph::Role::kConstant: return joint[id].bytes() == tensor.bytes();
      case graph::Role::kActivation:
        return ProgramPlan::lane_stride(tensor) == tensor.bytes() &&
               joint[id].bytes() == static_cast<size_t>(lanes) * tensor.bytes();
      default: return false;
    }
  };
  return graph::schema_of(own.kind).joins_lanes && std::ranges::all_of(own.inputs, is_joint) &&
         std::ranges::all_of(own.outputs, is_joint);
}

ProgramPlan plan_program(const graph::Graph& graph,
                         const WorkspaceBytes& workspace_bytes,
                         int lanes) {
  std::vector<Lifetime> blocks;
  const std::vector<int> block_of = make_blocks(graph, static_cast<size_t>(lanes), blocks);
  std::vector<int> workspace_block(graph.ops.size(), -1);
  ProgramPlan plan;
  plan.lanes = lanes;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    plan.flops += graph::schema_of(graph.ops[i].kind).flops(graph, graph.ops[i]);
    const size_t bytes = aligned(workspace_bytes(graph, graph.ops[i]));
    if (bytes == 0) continue;
    workspace_block[i] = static_cast<int>(blocks.size());
    blocks.push_back({bytes, static_cast<int>(i), static_cast<int>(i)});
  }
  plan.arena_bytes = place_by_lifetime(blocks);

  const auto placement = [&](TensorId tensor, const Lifetime& block) {
    plan.placements.push_back({tensor, block.offset, block.bytes, block.first_op, block.last_op});
    return block.offset;
  };
  plan.tensor_offsets.assign(graph.tensors.size(), kNotInArena);
  for (size_t id = 0; id < graph.tensors.size(); ++id) {
    if (block_of[id] < 0) continue;
    plan.tensor_offsets[id] =
        placement(static_cast<TensorId>(id), blocks[static_cast<size_t>(block_of[id])]);
  }
  lay_out(graph, graph::Role::kState, plan.states, plan.state_bytes);
  lay_out(graph, graph::Role::kConstant, plan.constants, plan.constant_bytes);
  plan.workspace_offsets.assign(graph.ops.size(), 0);
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (workspace_block[i] < 0) continue;
    plan.workspace_offsets[i] =
        placement(kNoTensor, blocks[static_cast<size_t>(workspace_block[i])]);
  }
  return plan;
}

}  // namespace lockstep::plan
