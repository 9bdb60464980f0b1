#include "runtime/run/supported.h"

#include <algorithm>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/graph/schema.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep {

void check_precision(const ExecutionConfig& execution, const OpSet& ops) {
  if (ops.separate_memory) {
    if (execution.bf16x3)
      throw ConfigError(
          "execution.bf16x3: value is true; allowed on {}: false (execution.tf32 is for GPUs)",
          ops.device);
    return;
  }
  if (execution.precision != Precision::kFp32)
    throw ConfigError(
        "execution.precision: value is {}; allowed on {}: FP32 (a GPU has BF16 and FP16; lockstep plan --gpu plans for one)",
        execution.precision == Precision::kBf16 ? "BF16" : "FP16",
        ops.device);
  if (execution.tf32)
    throw ConfigError("execution.tf32: value is true; allowed on {}: false", ops.device);
}

std::string tensor_core_advice(const RunConfig& config, const OpSet& ops) {
  const ExecutionConfig& execution = config.execution;
  if (!ops.separate_memory || execution.precision != Precision::kFp32 || execution.tf32) return "";
  const std::string what =
      "execution.precision is FP32, which uses none of the GPU's tensor cores; ";
  const auto* const onnx = std::get_if<OnnxConfig>(&config.model);
  if (onnx != nullptr && onnx->diffusion)  // whose times need floats
    return what + "--set execution.tf32=true uses them";
  return what +
         "--set execution.precision=BF16 uses them, and so does --set execution.tf32=true at half "
         "the rate";
}

void check_tree(const CommConfig& comm, const Topology& placed, const OpSet& ops) {
  if (comm.order == CommConfig::Order::kFast) return;
  for (const RankGroup& group : placed.groups_of(0)) {
    if (group.count <= ops.most_tree_ranks) continue;
    throw ConfigError(
        "comm.order: value is TREE; allowed where sums of {} ranks meet on device {}: FAST (TREE "
        "for up to {} ranks a node, as many on each, and up to {} nodes)",
        group.count,
        ops.device,
        ops.most_tree_ranks,
        ops.most_tree_ranks);
  }
}

void check_ops(const ModelConfig& model, const Graph& graph, const OpSet& ops) {
  for (const Op& op : graph.ops) {
    if (ops.supports(graph, op)) continue;
    if (!ops.has(op.kind))
      throw ConfigError("model.{}: device {} cannot run {} yet; allowed: --device cpu",
                        name_of(model),
                        ops.device,
                        name_of(op.kind));
    throw ConfigError(
        "model.{}: device {} cannot run '{}' ({} of {}): it is beyond what its kernels take; "
        "allowed: a narrower model, or a smaller train.global_batch / train.lanes",
        name_of(model),
        ops.device,
        op.name,
        name_of(op.kind),
        to_string(graph.shape(op.inputs[0])));
  }
}

void check_lanes(const TrainConfig& train, const std::string& node) {
  if (train.lanes == 1 || node.empty()) return;
  throw ConfigError(
      "train.lanes: value is {}; allowed: 1, which also limits the run to one rank, as the network "
      "mixes the samples of a batch (or their places in it, or their number) at {}, and a lane "
      "computes its samples alone",
      train.lanes,
      node);
}

void check_zero_stage(const CommConfig& comm, const Plan& plan) {
  const int ranks = plan.topology.ranks();
  if (!plan.shards_gradients || !plan.lanes_together || plan.lanes == ranks) return;
  throw ConfigError(
      "comm.zero_stage: value is {}; allowed with sync_batch_norm, whose lanes run together: 0, 1, "
      "or {} with as many ranks as train.lanes, {}, of which there are {}",
      comm.zero_stage,
      comm.zero_stage,
      plan.lanes,
      ranks);
}

void check_muon(const Plan& plan) {
  if (!plan.muon || !plan.muon->matrices.empty()) return;
  throw ConfigError(
      "optimizer.muon: the model has no hidden matrix that it could take (all are vectors, or match "
      "optimizer.muon.adamw_match); allowed: optimizer.adamw");
}

void check_samples_have_lengths(const ExecutionConfig& execution, bool have_documents) {
  if (execution.length_buckets.empty() || have_documents) return;
  throw ConfigError(
      "execution.length_buckets: value is {}; allowed with samples that may be padded (data.tokens "
      "with packing PADDED, conversations, labelled texts), else none",
      execution.length_buckets.front());
}

void check_update_groups(const OptimizerConfig& optimizer,
                         const ParameterLayout& layout,
                         const OpSet& ops) {
  const size_t groups = UpdateGroups(optimizer, layout).groups.size();
  if (groups <= ops.most_update_groups) return;
  const size_t tensors = adapted_slots(optimizer, layout).size();
  if (tensors == 0)
    throw ConfigError(
        "train.groups: the model's parameters have {} pairs of rate and weight decay, with those of "
        "train.layer_lr_decay; allowed on {}: up to {}, or --device cpu",
        groups,
        ops.device,
        ops.most_update_groups);
  throw ConfigError(
      "optimizer.{}: the model has {} tensors with a rate of their own; allowed on {}: up to {}, "
      "or --device cpu",
      optimizer_name(optimizer),
      tensors,
      ops.device,
      ops.most_update_groups - std::min(ops.most_update_groups, groups - tensors));
}

}  // namespace lockstep
