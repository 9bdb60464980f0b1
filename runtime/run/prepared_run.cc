#include "runtime/run/prepared_run.h"

#include <utility>

#include "runtime/run/capability_checks.h"
#include "runtime/run/config_checks.h"
#include "runtime/run/sample_use.h"

namespace lockstep::run {
namespace {

// Makes the plan with run.defaults: stage 7.
void plan(PreparedRun& run) {
  static_cast<RunPlan&>(run) =
      plan_run(run, *run.graphs, run.defaults, run.config.train.global_batch);
  run.recorded = run.config;
  run.recorded.comm.bucket_mib = run.defaults.bucket_mib;
}

// Placeholders of missing files have no real number of samples.
void add_sample_use(double epochs, PreparedRun* run) {
  const data::DataSummary& data = run->data->summary;
  if (run->purpose != RunPurpose::kTrain || !data.placeholder.empty()) return;
  const RunConfig& config = run->config;
  std::string warning = sample_use_warning(
      config.train, epochs, run->data->train->samples(), config.data.balance_classes);
  if (!warning.empty()) run->warnings.push_back(std::move(warning));
}

}  // namespace

PreparedRun prepare_run(const OpenedConfig& opened,
                        const collectives::Topology& placed,
                        RunPurpose purpose,
                        const exec::OpSet& ops,
                        const PrepareOptions& options) {
  check_for_device(opened, placed, purpose, ops);
  std::shared_ptr<data::OpenedData> data = open_run_data(opened, purpose, options.may_assume_data);
  PreparedRun run;
  static_cast<ResolvedRun&>(run) =
      resolve(opened, purpose, std::move(data), ops, options.checkpoint);
  const std::string mixing = check_samples(run);
  run.placed = placed;
  run.graphs = std::make_shared<const plan::RunGraphs>(
      build_graphs(run, run.config.train.global_batch, placed.ranks()));
  run.warnings = check_graphs(run, *run.graphs, mixing);
  add_sample_use(opened.config.train.epochs, &run);
  run.defaults =
      choose_defaults(run.config, placed, purpose, ops, run.graphs->training, options.link_gbit);
  run.defaults.records_work = !options.eager;
  if (options.bucket_mib > 0) run.defaults.bucket_mib = options.bucket_mib;
  plan(run);
  if (purpose == RunPurpose::kTrain) {
    check_plan(run, run.plan);
    run.flops_per_sample = run.model->flops_per_sample(run.io);
  }
  run.model->release();
  return run;
}

std::vector<std::string> warnings_of(const PreparedRun& prepared) {
  std::vector<std::string> warnings = prepared.data->summary.warnings;
  warnings.insert(warnings.end(), prepared.warnings.begin(), prepared.warnings.end());
  return warnings;
}

PreparedRun with_buckets(const PreparedRun& prepared, double bucket_mib) {
  PreparedRun other = prepared;
  other.defaults.bucket_mib = bucket_mib;
  plan(other);
  return other;
}

PreparedRun with_config(const PreparedRun& prepared, const RunConfig& config) {
  check_for_device({config, prepared.model}, prepared.placed, prepared.purpose, *prepared.ops);
  check_samples_of_lanes(config.train);
  PreparedRun other = prepared;
  other.config = config;
  const std::string mixing = check_samples(other);
  other.graphs = std::make_shared<const plan::RunGraphs>(
      build_graphs(other, config.train.global_batch, prepared.placed.ranks()));
  other.warnings = check_graphs(other, *other.graphs, mixing);
  other.defaults =
      choose_defaults(config, prepared.placed, other.purpose, *other.ops, other.graphs->training);
  other.defaults.records_work = prepared.defaults.records_work;
  other.defaults.snapshot = prepared.defaults.snapshot;
  other.defaults.adds_pairs = prepared.defaults.adds_pairs;
  plan(other);
  check_plan(other, other.plan);
  return other;
}

PreparedRun without_snapshot(const PreparedRun& prepared) {
  PreparedRun other = prepared;
  other.defaults.snapshot = false;
  plan(other);
  return other;
}

PreparedRun with_pairs(const PreparedRun& prepared) {
  PreparedRun other = prepared;
  other.defaults.adds_pairs = true;
  plan(other);
  return other;
}

plan::Plan plan_for_batch(const PreparedRun& prepared, int64_t global_batch) {
  const plan::RunGraphs graphs = build_graphs(prepared, global_batch, prepared.placed.ranks());
  return plan_run(prepared, graphs, prepared.defaults, global_batch).plan;
}

train::RunContext context_of(const PreparedRun& prepared,
                             collectives::Communicator& communicator,
                             collectives::Communicator& slices,
                             exec::Backend& backend,
                             collectives::NodeMemory* node,
                             train::RunFolder* folder) {
  return {prepared.recorded,
          communicator,
          slices,
          node,
          backend,
          *prepared.graphs,
          prepared.plan,
          *prepared.data,
          prepared.recorded.output.run_dir,
          prepared.train_ring_batches,
          prepared.eval_ring_batches,
          prepared.flops_per_sample,
          0,  // a forecast is set later
          prepared.model->traits(),
          folder};
}

}  // namespace lockstep::run
