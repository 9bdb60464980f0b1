#include "runtime/run/build_graphs.h"

#include <utility>

#include "models/huggingface/lora_layers.h"
#include "runtime/base/error.h"
#include "runtime/data/format.h"
#include "runtime/graph/fusion.h"
#include "runtime/graph/gradient_order.h"
#include "runtime/graph/ops/attention.h"
#include "runtime/graph/ops/lora.h"
#include "runtime/graph/parameter_groups.h"
#include "runtime/run/capability_checks.h"
#include "runtime/run/defaults.h"
#include "runtime/run/lanes.h"

namespace lockstep::run {
namespace {

// The reference of answers is the network without its LoRA, which must not move.
void require_frozen_base(const graph::Graph& graph) {
  for (const TensorId id : graph.parameters) {
    const graph::Tensor& parameter = graph[id];
    if (!parameter.frozen && !graph::is_lora(parameter.name))
      throw ConfigError(
          "adapter.lora: '{}' trains besides the LoRA; allowed with data.preferences: nothing else "
          "(adapter.lora.train_also, train.groups), because the base is the reference",
          parameter.name);
  }
}

graph::GraphOptions options_for(const ResolvedRun& run, graph::Purpose purpose) {
  const RunConfig& config = run.config;
  const config::ModelTraits& traits = run.model->traits();
  graph::GraphOptions options(purpose);
  options.compute = compute_type(config.execution.precision);
  options.head_multiple = run.ops->head_multiple;
  options.lanes = static_cast<int>(config.train.lanes);
  options.bf16x3 = config.execution.bf16x3;
  options.packed = run.samples_are_packed();
  options.loss_rows = loss_rows_of(config.execution, traits.outputs, *run.ops);
  options.class_weights = config.train.class_weights;
  options.pos_weight = config.train.pos_weight;
  options.contrastive = config.train.contrastive;
  if (traits.target_kind() == config::TargetKind::kPreference)
    options.preference = config.train.preference;
  options.recompute = config.execution.recompute == ExecutionConfig::Recompute::kBlocks;
  if (!config.execution.length_buckets.empty()) options.sample_tokens = traits.context;
  options.lora = huggingface::lora_layers(config);
  options.prepare_parameters = [&config, &traits](graph::Graph& graph) {
    huggingface::freeze_base(config, graph);
    graph::set_parameter_groups(config.train, traits.section, graph);
    if (traits.text_task == config::TextTask::kAnswers) require_frozen_base(graph);
  };
  return options;
}

// `tokens`: see OpenedModel::build().
graph::Graph build_graph(const ResolvedRun& run,
                         graph::Purpose purpose,
                         int64_t global_batch,
                         int64_t tokens = 0) {
  graph::Graph graph = run.model->build(
      run.io, global_batch / run.config.train.lanes, options_for(run, purpose), tokens);
  if (!data::format_of(run.config.data)->shares_samples()) graph::set_one_document(graph);
  check_ops(run.config.model, graph, *run.ops);
  const graph::Supports supports = [&](const graph::Graph& g, const graph::Op& op) {
    return run.ops->supports(g, op);
  };
  graph::fuse_batch_norms(graph, supports);
  graph::save_relu_masks(graph, supports);
  if (purpose == graph::Purpose::kTraining && run.ops->separate_memory)
    graph::postpone_weight_gradients(graph);
  return graph;
}

}  // namespace

plan::RunGraphs build_graphs(const ResolvedRun& run, int64_t global_batch, int ranks) {
  plan::RunGraphs graphs;
  graphs.training = build_graph(run, graph::Purpose::kTraining, global_batch);
  const int pass = run.purpose == RunPurpose::kTrain ? lanes_of_pass(run.config, ranks) : 1;
  if (pass > 1 && !graphs.training.crosses_lanes())
    graphs.joint_training = build_graph(run, graph::Purpose::kTraining, pass * global_batch);
  const bool predicts = run.purpose == RunPurpose::kPredict;
  if (run.data->eval)
    graphs.evaluation = build_graph(
        run, predicts ? graph::Purpose::kInference : graph::Purpose::kEvaluation, global_batch);
  for (const int64_t tokens : run.config.execution.length_buckets) {
    graphs.length_bucket_training.push_back(
        build_graph(run, graph::Purpose::kTraining, global_batch, tokens));
    if (!graphs.evaluation) continue;
    const graph::Graph& full = *graphs.evaluation;
    graph::Graph bucket = build_graph(run, full.purpose, global_batch, tokens);
    if (bucket.shape(bucket.result) == full.shape(full.result))
      graphs.length_bucket_evaluation.push_back(std::move(bucket));
  }
  return graphs;
}

}  // namespace lockstep::run
