#include "runtime/run/capability_checks.h"

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/run/norm_statistics.h"
#include "runtime/train/evaluation/task_scores.h"
#include "runtime/train/step/optimizer.h"

namespace lockstep::run {

namespace {

// train.lanes must be 1 if a node mixes the samples of a batch. `node`: its description; empty if
// there is no such node.
void check_lanes(const TrainConfig& train, const std::string& node) {
  if (train.lanes == 1 || node.empty()) return;
  throw ConfigError(
      "train.lanes: value is {}; allowed: 1, which also limits the run to one rank, as the network "
      "mixes the samples of a batch (or depends on their positions or their number) at {}, and a "
      "lane computes its samples alone",
      train.lanes,
      node);
}

// In ZeRO stages 2 and 3 the lanes of a rank use one gradient buffer in turn. Interleaved lanes
// would need a buffer each.
void check_zero_stage(const plan::Plan& plan, const std::string& crossing) {
  const int ranks = plan.sharding.topology.ranks();
  if (!plan.sharding.shards_gradients() || !plan.sharding.interleaved_lanes ||
      plan.sharding.lanes == ranks)
    return;
  throw ConfigError(
      "comm.zero_stage: value is {}; allowed with {}, which interleaves the lanes of a rank: 0, 1, "
      "or {} on as many ranks as train.lanes ({}; this run has {} ranks)",
      plan.sharding.zero_stage,
      crossing,
      plan.sharding.zero_stage,
      plan.sharding.lanes,
      ranks);
}

// Several lanes in one pass need gradient buffers of their own, samples of one length, and a device
// that profits.
void check_pass(const RunConfig& config,
                const plan::Plan& plan,
                const exec::OpSet& ops,
                const std::string& crossing) {
  const int64_t lanes = config.execution.lanes_per_pass;
  if (lanes == 1) return;
  const auto refuse = [&](const std::string& with) {
    throw ConfigError("execution.lanes_per_pass: value is {}; allowed {}: 1", lanes, with);
  };
  if (!ops.separate_memory) refuse(fmt::format("on {}", ops.device));
  if (!config.execution.length_buckets.empty()) refuse("with execution.length_buckets");
  if (plan.sharding.interleaved_lanes)
    refuse(fmt::format("with {}, for which all lanes of a rank run at the same time", crossing));
  if (config.comm.power_sgd_rank > 0) refuse("with comm.power_sgd_rank");
  if (plan.sharding.shards_gradients() && plan.sharding.topology.ranks() > 1)
    refuse(fmt::format("in ZeRO stage {}", plan.sharding.zero_stage));
}

void check_muon(const plan::Plan& plan) {
  if (!plan.traffic.muon || !plan.traffic.muon->matrices.empty()) return;
  throw ConfigError(
      "optimizer.muon: the model has no hidden matrix that it could take (all are vectors, or "
      "match optimizer.muon.adamw_match); allowed: optimizer.adamw");
}

// Samples must have lengths. `have_documents`: they have the rows of packed_tokens.h.
void check_samples_have_lengths(const ExecutionConfig& execution, bool have_documents) {
  if (execution.length_buckets.empty() || have_documents) return;
  throw ConfigError(
      "execution.length_buckets: value is {}; allowed with samples that may be padded (data.tokens "
      "with packing PADDED, conversations, labelled texts), otherwise none",
      execution.length_buckets.front());
}

// A layer-wise optimizer has a rate for every tensor, and a device holds a limited number of them.
void check_update_groups(const OptimizerConfig& optimizer,
                         const plan::ParameterLayout& layout,
                         const exec::OpSet& ops) {
  const size_t groups = train::UpdateGroups(optimizer, layout).groups.size();
  if (groups <= ops.max_update_groups) return;
  const size_t tensors = train::adapted_tensors(optimizer, layout).size();
  if (tensors == 0)
    throw ConfigError(
        "train.groups: the model's parameters have {} pairs of learning rate and weight decay, "
        "including those of train.layer_lr_decay; allowed on {}: up to {}, or --device cpu",
        groups,
        ops.device,
        ops.max_update_groups);
  throw ConfigError(
      "optimizer.{}: the model has {} tensors with a learning rate of their own; allowed on {}: up "
      "to {}, or --device cpu",
      train::optimizer_name(optimizer),
      tensors,
      ops.device,
      ops.max_update_groups - std::min(ops.max_update_groups, groups - tensors));
}

}  // namespace

std::string tensor_core_advice(const ExecutionConfig& execution,
                               bool needs_fp32,
                               const exec::OpSet& ops) {
  if (!ops.separate_memory || execution.precision != Precision::kFp32 || execution.tf32) return "";
  const std::string what =
      "execution.precision is FP32, which uses none of the GPU's tensor cores; ";
  if (needs_fp32) return what + "--set execution.tf32=true uses them";
  return what +
         "--set execution.precision=BF16 uses them, and so does --set execution.tf32=true at half "
         "the rate";
}

void check_ops(const ModelConfig& model, const graph::Graph& graph, const exec::OpSet& ops) {
  for (const graph::Op& op : graph.ops) {
    if (ops.supports(graph, op)) continue;
    if (!ops.has(op.kind))
      throw ConfigError("model.{}: device {} cannot run {} yet; allowed: --device cpu",
                        config::name_of(model),
                        ops.device,
                        graph::name_of(op.kind));
    throw ConfigError(
        "model.{}: device {} cannot run '{}' ({} of {}), which is too large for its kernels; "
        "allowed: a narrower model, or a smaller train.global_batch / train.lanes",
        config::name_of(model),
        ops.device,
        op.name,
        graph::name_of(op.kind),
        to_string(graph.shape(op.inputs.first())));
  }
}

std::string check_samples(const ResolvedRun& run) {
  const TrainConfig& train = run.config.train;
  check_samples_have_lengths(run.config.execution, run.samples_are_packed());
  std::string mixing =
      run.model->mixing_node(run.io, train.global_batch, train.global_batch / train.lanes);
  check_lanes(train, mixing);
  return mixing;
}

std::vector<std::string> check_graphs(const ResolvedRun& run,
                                      const plan::RunGraphs& graphs,
                                      const std::string& mixing) {
  std::vector<std::string> warnings;
  const RunConfig& config = run.config;
  if (run.purpose == RunPurpose::kTrain) {
    for (const graph::Graph& bucket : graphs.length_bucket_training)
      check_norm_statistics(config, bucket);
    warnings = check_norm_statistics(config, graphs.training);
  }
  const int64_t batch = config.train.global_batch;
  if (!mixing.empty() && run.data->eval &&
      train::evaluated_samples(config.eval, *run.data->eval) % batch != 0)
    warnings.push_back(fmt::format(
        "the network mixes the samples of a batch at {}, and the last batch of an evaluation is "
        "filled up with zeros: its results count samples that are not there, unless the evaluated "
        "samples (eval.max_samples) are a multiple of train.global_batch, {}",
        mixing,
        batch));
  const bool needs_fp32 = run.ops->separate_memory && !run.model->reason_for_fp32().empty();
  if (std::string advice = tensor_core_advice(config.execution, needs_fp32, *run.ops);
      !advice.empty())
    warnings.push_back(std::move(advice));
  return warnings;
}

void check_plan(const ResolvedRun& run, const plan::Plan& plan) {
  const RunConfig& config = run.config;
  const exec::OpSet& ops = *run.ops;
  // Why lanes are interleaved, if they are.
  const std::string crossing =
      run.model->traits().loss == Loss::kContrastive ? "a loss of pairs" : "sync_batch_norm";
  check_zero_stage(plan, crossing);
  check_pass(config, plan, ops, crossing);
  check_muon(plan);
  check_update_groups(config.optimizer, plan.layout, ops);
}

}  // namespace lockstep::run
