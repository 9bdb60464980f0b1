#include "runtime/run/assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/huggingface/lora_layers.h"
#include "runtime/base/error.h"
#include "runtime/config/limits.h"
#include "runtime/config/parse.h"
#include "runtime/config/validate.h"
#include "runtime/data/assumed.h"
#include "runtime/data/format.h"
#include "runtime/graph/fusion.h"
#include "runtime/graph/parameter_groups.h"
#include "runtime/run/norm_statistics.h"
#include "runtime/run/supported.h"
#include "runtime/train/evaluation/task_scores.h"
#include "runtime/train/step/batch_stage.h"
#include "runtime/train/step/weight_average.h"

namespace lockstep {
namespace {

void resolve_length(TrainConfig& train, int64_t samples) {
  if (train.steps > 0) return;
  const double steps = std::ceil(train.epochs * static_cast<double>(samples) /
                                 static_cast<double>(train.global_batch));
  const int64_t most = integer_limit_of("train.steps").high;
  if (steps > static_cast<double>(most))
    throw ConfigError("train.epochs: value is {}, which is {:.0f} steps; allowed: up to {} steps",
                      train.epochs,
                      steps,
                      most);
  train.steps = std::max<int64_t>(static_cast<int64_t>(steps), 1);
  train.epochs = 0;
}

ModelIo io_of(const DataSummary& summary) {
  return {.features = summary.features,
          .classes = summary.classes,
          .target_columns = summary.target_columns,
          .vocabulary = summary.vocabulary,
          .height = summary.height,
          .width = summary.width,
          .channels = summary.channels,
          .mean = summary.mean,
          .std = summary.std};
}

// Bytes of a loader's ring, choosing its length where the config leaves it open.
size_t ring_bytes(const Dataset& dataset,
                  const BatchGeometry& geometry,
                  int64_t wanted,
                  int64_t& batches) {
  batches = wanted > 0 ? wanted : default_ring_batches(loader_bytes(dataset, geometry, 1));
  return loader_bytes(dataset, geometry, batches);
}

// Of a language model: whether its samples are rows of tokens, documents and positions.
bool samples_are_packed(const Assembly& run) {
  const Dataset* const dataset = run.data.train ? run.data.train.get() : run.data.eval.get();
  return traits_of(run.config.model).input == ModelInput::kTokens && dataset != nullptr &&
         dataset->input().shape.rank() == 2;
}

// `tokens`: see build_model().
Graph build_graph(const Assembly& run, Purpose purpose, int64_t global_batch, int64_t tokens = 0) {
  const RunConfig& config = run.config;
  GraphOptions options(purpose);
  options.compute = compute_type(config.execution.precision);
  options.logits_alignment = run.ops->logits_alignment;
  options.lanes = static_cast<int>(config.train.lanes);
  options.bf16x3 = config.execution.bf16x3;
  options.packed = samples_are_packed(run);
  options.loss_rows = loss_rows_of(config.execution, traits_of(config.model).outputs, *run.ops);
  options.class_weights = config.train.class_weights;
  options.recompute = config.execution.recompute == ExecutionConfig::Recompute::kBlocks;
  if (!config.execution.length_buckets.empty())
    options.sample_tokens = traits_of(config.model).context;
  options.lora = huggingface::lora_layers(config);
  options.prepare_parameters = [&](Graph& graph) {
    huggingface::freeze_base(config, graph);
    set_parameter_groups(config.train, name_of(config.model), graph);
  };
  Graph graph =
      build_model(config.model, run.io, global_batch / config.train.lanes, options, tokens);
  check_ops(config.model, graph, *run.ops);
  fuse_batch_norms(graph, [&](const Graph& g, const Op& op) { return run.ops->supports(g, op); });
  return graph;
}

// The graphs alone.
Program build_graphs(const Assembly& run, int64_t global_batch) {
  Program program;
  program.training = build_graph(run, Purpose::kTraining, global_batch);
  const bool predicts = run.purpose == RunPurpose::kPredict;
  if (run.data.eval)
    program.evaluation =
        build_graph(run, predicts ? Purpose::kInference : Purpose::kEvaluation, global_batch);
  for (const int64_t tokens : run.config.execution.length_buckets) {
    program.shorter_training.push_back(build_graph(run, Purpose::kTraining, global_batch, tokens));
    if (!program.evaluation) continue;
    const Graph& whole = *program.evaluation;
    Graph shorter = build_graph(run, whole.purpose, global_batch, tokens);
    if (shorter.shape(shorter.result) == whole.shape(whole.result))
      program.shorter_evaluation.push_back(std::move(shorter));
  }
  return program;
}

// Plans the graphs of a program as decided.
void add_plan(const Assembly& run, int64_t global_batch, Program& program) {
  const RunConfig& config = run.config;
  const OpSet& ops = *run.ops;
  const bool trains = run.purpose == RunPurpose::kTrain;
  const int lanes = static_cast<int>(config.train.lanes);
  const int local_lanes = lanes / run.decisions.topology.ranks();
  PlanOptions options;
  options.topology = run.decisions.topology;
  options.zero_stage = run.decisions.zero_stage;
  options.bucket_mib = run.decisions.bucket_mib;
  options.lanes = lanes;
  options.wire = compute_type(config.comm.wire_dtype);
  const bool halves = moment_dtype(config.optimizer) != DType::kF32;
  options.half_moments = halves ? static_cast<int>(moment_names(config.optimizer).size()) : 0;
  options.moments = static_cast<int>(kept_arrays(config).size()) - options.half_moments;
  options.muon = std::get_if<MuonConfig>(&config.optimizer.kind);
  options.newton_schulz_bytes = ops.newton_schulz_bytes;
  options.evaluation_only = !trains;
  const BatchGeometry geometry = {
      global_batch / lanes, lanes, 0, local_lanes};  // sizes alone count
  const int64_t wanted = config.execution.prefetch_batches;
  for (const auto& [dataset, bytes, batches] :
       {std::tuple(run.data.train.get(), &options.train_batch_bytes, &program.train_ring_batches),
        std::tuple(run.data.eval.get(), &options.eval_batch_bytes, &program.eval_ring_batches)}) {
    if (dataset == nullptr) continue;
    *bytes = ring_bytes(*dataset, geometry, wanted, *batches);
    options.dataset_bytes += static_cast<size_t>(dataset->resident_bytes());
  }
  if (program.evaluation && run.purpose != RunPurpose::kPredict) {
    const ModelTraits model = traits_of(config.model);
    const TaskScoresLayout scores(
        model, *program.evaluation, lanes, evaluated_samples(config.eval, *run.data.eval));
    if (trains) check_best(config.eval, model, scores);
    options.eval_score_bytes = scores.bytes();
  }
  if (trains) {
    options.snapshot = run.decisions.snapshot;
    options.residual_groups = residual_groups(config);
    options.power_sgd = static_cast<int>(config.comm.power_sgd_rank);
  }
  options.separate_memory = ops.separate_memory;
  if (ops.separate_memory) {
    options.library_bytes = ops.workspace_bytes;
    options.device_batch_bytes =
        BatchStage::device_bytes(program.training, static_cast<size_t>(local_lanes));
  }
  program.plan = make_plan(
      program.training,
      program.evaluation ? &*program.evaluation : nullptr,
      options,
      [&ops](const Graph& graph, const Op& op) { return ops.op_workspace_bytes(graph, op); },
      {program.shorter_training, program.shorter_evaluation});
}

}  // namespace

Assembly assemble(RunConfig config,
                  const Topology& placed,
                  RunPurpose purpose,
                  const OpSet& ops,
                  const CheckpointState* checkpoint,
                  bool may_assume_data) {
  const bool training = purpose == RunPurpose::kTrain;
  if (!training) config.comm.residual_groups = 0;  // nothing is summed
  validate_for_ranks(config, placed.ranks());
  check_precision(config.execution, ops);
  check_tree(config.comm, placed, ops);
  Assembly run;
  run.purpose = purpose;
  run.ops = &ops;
  const ModelTraits model = traits_of(config.model);
  if (model.text_task == TextTask::kHiddenStates && purpose != RunPurpose::kPredict)
    throw ConfigError(
        "{}: value is HIDDEN_STATES, which has no loss; allowed: the other tasks, or `lockstep "
        "predict`",
        model.field("task"));
  if (model.diffusion && purpose == RunPurpose::kPredict)
    throw ConfigError(
        "model: is {}, which predicts nothing of a sample; allowed: `lockstep sample`",
        model.section);
  if (may_assume_data)
    run.data = open_or_assume_data(config.data, model, config.seed);
  else if (purpose == RunPurpose::kPredict)
    run.data = open_inputs(config.data, model, config.seed);
  else
    run.data = open_data(config.data, model, config.seed, training);
  if (!training && !run.data.eval)
    throw ConfigError(
        "data: names no evaluation data; give the source's eval file(s) or eval_fraction");
  run.io = io_of(run.data.summary);
  config.model = resolve_model(config.model, run.io);
  check_class_weights(config.train, traits_of(config.model));
  if (training) {
    resolve_length(config.train, run.data.train->samples());
    validate_schedule_length(config.schedule, config.train.steps);
  }
  if (config.adapter.lora)
    config.adapter.lora->train_also = huggingface::train_also_with_new_heads(
        config, build_model(config.model, run.io, 1, Purpose::kInference), checkpoint);
  run.config = std::move(config);
  check_samples_have_lengths(run.config.execution, samples_are_packed(run));
  const int64_t global_batch = run.config.train.global_batch;
  const int64_t lanes = run.config.train.lanes;
  const std::string mixing =
      mixing_node(run.config.model, run.io, global_batch, global_batch / lanes);
  check_lanes(run.config.train, mixing);
  Program program = build_graphs(run, global_batch);
  if (training) {
    for (const Graph& shorter : program.shorter_training)
      check_norm_statistics(run.config, shorter);
    run.warnings = check_norm_statistics(run.config, program.training);
  }
  if (!mixing.empty() && run.data.eval &&
      evaluated_samples(run.config.eval, *run.data.eval) % global_batch != 0)
    run.warnings.push_back(fmt::format(
        "the network mixes the samples of a batch at {}, and the last batch of an evaluation is filled "
        "up with zeros: its results count samples that are not there, unless the evaluated samples "
        "(eval.max_samples) are a multiple of train.global_batch, {}",
        mixing,
        global_batch));
  if (std::string advice = tensor_core_advice(run.config, ops); !advice.empty())
    run.warnings.push_back(std::move(advice));
  run.decisions = decide(run.config, placed, purpose, ops, program.training);
  run.config.comm.bucket_mib = run.decisions.bucket_mib;
  add_plan(run, global_batch, program);
  static_cast<Program&>(run) = std::move(program);
  if (training) {
    check_zero_stage(run.config.comm, run.plan);
    check_muon(run.plan);
    check_update_groups(run.config.optimizer, run.plan.layout, ops);
  }
  return run;
}

Program program_for(const Assembly& assembly, int64_t global_batch) {
  Program program = build_graphs(assembly, global_batch);
  add_plan(assembly, global_batch, program);
  return program;
}

void plan_again(Assembly& assembly, double bucket_mib) {
  assembly.config.comm.bucket_mib = assembly.decisions.bucket_mib = bucket_mib;
  add_plan(assembly, assembly.config.train.global_batch, assembly);
}

void drop_snapshot(Assembly& assembly) {
  assembly.decisions.snapshot = false;
  add_plan(assembly, assembly.config.train.global_batch, assembly);
}

RunParts parts_of(const Assembly& assembly,
                  Communicator& communicator,
                  Communicator& slices,
                  Backend& backend,
                  NodeMemory* node,
                  RunFolder* folder) {
  return {assembly.config,
          communicator,
          slices,
          node,
          backend,
          assembly.training,
          assembly.evaluation ? &*assembly.evaluation : nullptr,
          assembly.plan,
          assembly.data,
          assembly.config.output.run_dir,
          assembly.train_ring_batches,
          assembly.eval_ring_batches,
          model_flops_per_sample(assembly.config.model, assembly.io),
          traits_of(assembly.config.model),
          folder,
          {assembly.shorter_training, assembly.shorter_evaluation}};
}

}  // namespace lockstep
