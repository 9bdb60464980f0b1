#include "runtime/run/plan_run.h"

#include <tuple>

#include "collectives/reduce/device_sums.h"
#include "runtime/data/loader.h"
#include "runtime/run/lanes.h"
#include "runtime/train/evaluation/task_scores.h"
#include "runtime/train/step/batch_stage.h"
#include "runtime/train/step/optimizer.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep::run {
namespace {

// Returns the bytes of a loader's ring, and sets its length in batches: `wanted` or, if that is 0,
// the usual one.
size_t ring_bytes(const data::Dataset& dataset,
                  const data::BatchGeometry& geometry,
                  int64_t wanted,
                  int64_t& batches) {
  batches =
      wanted > 0 ? wanted : data::default_ring_batches(data::loader_bytes(dataset, geometry, 1));
  return data::loader_bytes(dataset, geometry, batches);
}

// The lanes of the rank that has the most.
int lanes_of_rank(const plan::PlanOptions& options) { return options.sharding.shares().most(); }

// Sets what the memory of the optimizer's state depends on.
void add_optimizer(const RunConfig& config,
                   const exec::OpSet& ops,
                   plan::PlanOptions::Optimizer& optimizer) {
  const DType type = train::moment_dtype(config.optimizer);
  const auto moments = static_cast<int>(train::moment_names(config.optimizer).size());
  if (type == DType::kBF16) optimizer.half_moments = moments;
  if (type == DType::kU8) optimizer.block_moments = moments;
  optimizer.moments = static_cast<int>(train::kept_arrays(config).size()) - optimizer.half_moments -
                      optimizer.block_moments;
  optimizer.config = &config.optimizer;
  optimizer.by_bucket = !train::is_layer_wise(config.optimizer) &&
                        !std::holds_alternative<MuonConfig>(config.optimizer.kind) &&
                        config.train.ema_decay == 0;
  optimizer.newton_schulz_bytes = ops.newton_schulz_bytes;
}

// Adds the memory of the data sets and of the batches that are read ahead.
void add_data(const ResolvedRun& run,
              int64_t global_batch,
              plan::PlanOptions& options,
              RunPlan& plan) {
  const data::BatchGeometry geometry = {.lane_batch = global_batch / options.sharding.lanes,
                                        .lanes = options.sharding.lanes,
                                        .first_lane = 0,
                                        .local_lanes = lanes_of_rank(options)};
  const int64_t wanted = run.config.execution.prefetch_batches;
  for (const auto& [dataset, bytes, batches] :
       {std::tuple(run.data->train.get(), &options.data.train_batches, &plan.train_ring_batches),
        std::tuple(run.data->eval.get(), &options.data.eval_batches, &plan.eval_ring_batches)}) {
    if (dataset == nullptr) continue;
    *bytes = ring_bytes(*dataset, geometry, wanted, *batches);
    options.data.dataset += static_cast<size_t>(dataset->resident_bytes());
  }
}

// Adds the memory of the predictions from which an evaluation's metrics are computed.
void add_scores(const ResolvedRun& run, const plan::RunGraphs& graphs, plan::PlanOptions& options) {
  if (!graphs.evaluation || run.purpose == RunPurpose::kPredict) return;
  const config::ModelTraits& model = run.model->traits();
  const train::TaskScoresLayout scores(model,
                                       run.data->summary,
                                       *graphs.evaluation,
                                       options.sharding.lanes,
                                       train::evaluated_samples(run.config.eval, *run.data->eval),
                                       run.config);
  train::require_all_vectors(run.config.eval, model, scores);
  if (run.purpose == RunPurpose::kTrain)
    train::require_scores_of_best(run.config.eval, model, scores);
  options.data.eval_scores = scores.bytes();
}

}  // namespace

RunPlan plan_run(const ResolvedRun& run,
                 const plan::RunGraphs& graphs,
                 const RunDefaults& defaults,
                 int64_t global_batch) {
  const RunConfig& config = run.config;
  const exec::OpSet& ops = *run.ops;
  const bool trains = run.purpose == RunPurpose::kTrain;
  RunPlan result;
  plan::PlanOptions options;
  options.sharding = defaults.sharding;
  if (graphs.joint_training)
    options.sharding.lanes_per_pass = lanes_of_pass(config, defaults.sharding.topology.ranks());
  options.bucket_mib = defaults.bucket_mib;
  options.wire = wire_type(config.comm.wire_dtype);
  options.evaluation_only = !trains;
  add_optimizer(config, ops, options.optimizer);
  if (trains) options.sharding.residual_groups = config::residual_groups(config);
  add_data(run, global_batch, options, result);
  add_scores(run, graphs, options);
  if (trains) {
    options.optimizer.snapshot = defaults.snapshot;
    options.power_sgd = static_cast<int>(config.comm.power_sgd_rank);
  }
  if (ops.separate_memory) {
    const int local_lanes = lanes_of_rank(options);
    plan::PlanOptions::Device& device = options.device.emplace();
    device.library_bytes = ops.workspace_bytes;
    device.adds_pairs = defaults.adds_pairs;
    device.batch_bytes =
        train::BatchStage::device_bytes(graphs.training, static_cast<size_t>(local_lanes));
    if (trains) device.sums_bytes = collectives::DeviceSums::bytes(options.sharding.shares());
    if (trains && defaults.records_work)
      device.recorded_lengths = 1 + graphs.length_bucket_training.size();
  }
  result.plan =
      plan::make_plan(graphs, options, [&ops](const graph::Graph& graph, const graph::Op& op) {
        return ops.op_workspace_bytes(graph, op);
      });
  return result;
}

}  // namespace lockstep::run
