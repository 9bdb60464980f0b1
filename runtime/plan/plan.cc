// Makes the plan of a run. Each decision depends only on those before it:
//
//    layout, buckets    the flat order of parameters, and its cuts              layout.cc
//    training           the arena of activations, which op completes a bucket   arena.cc
//    gradient memory    ZeRO 2 and 3: buckets share memory                      gradient_memory.cc
//    gathers            when sharded parameters, or sums, are gathered          gathers.cc
//    length buckets     the same plan with smaller arenas             length_bucket_programs.cc
//    muon               which rank orthogonalizes which matrix                  muon_layout.cc
//    memory, traffic    derived from all of the above                            here
//
//    ZeRO stage   sharded (1/ranks on a rank)     gathered
//    0            nothing                         the summed gradients, after the backward pass,
//                                                 unless ranks share memory
//    1            moments, master weights         the parameters, during the next forward pass
//    2            and the summed gradients        the same
//    3            and the parameters              each block, whenever a program needs it
//
// Invariants: make_plan() is a pure function of the graphs and options, so all ranks, and `lockstep
// plan` on a machine without the device, compute the same plan. `memory` lists exactly the
// allocations of a run: whoever adds an allocation adds a row here and allocates row_bytes().
#include "runtime/plan/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "collectives/reduce/error_feedback_layout.h"
#include "runtime/base/error.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/length_bucket_programs.h"
#include "runtime/plan/moment_layout.h"
#include "runtime/plan/recorded_graphs.h"

namespace lockstep {

int64_t Plan::owned_index_of(int rank, size_t bucket, int64_t flat) const {
  if (!shards_optimizer) return flat;
  const Range range =
      bucket < buckets.size() ? buckets[bucket] : frozen_buckets[bucket - buckets.size()];
  const Range part = part_of(range, topology.part_of(rank), topology.ranks());
  return range.begin / topology.ranks() + flat - part.begin;
}

std::vector<Range> Plan::all_buckets() const {
  std::vector<Range> all = buckets;
  all.insert(all.end(), frozen_buckets.begin(), frozen_buckets.end());
  return all;
}

std::vector<std::string> Plan::bucket_names() const {
  std::vector<std::string> names;
  for (const Range& bucket : all_buckets()) {
    const std::string& first = layout.slots[layout.slot_at(bucket.begin)].name;
    const std::string& last = layout.slots[layout.slot_at(bucket.end - 1)].name;
    names.push_back(first == last ? first : first + " to " + last);
  }
  return names;
}

size_t Plan::gradient_buckets() const {
  const auto end = std::find_if(buckets.begin(), buckets.end(), [&](const Range& bucket) {
    return bucket.begin >= layout.statistics_begin;
  });
  return static_cast<size_t>(end - buckets.begin());
}

size_t Plan::memory_bytes() const {
  size_t total = 0;
  for (const MemoryRow& row : memory) total += row.bytes;
  return total;
}

size_t Plan::row_bytes(const std::string& name) const {
  const auto row = std::find_if(
      memory.begin(), memory.end(), [&](const MemoryRow& r) { return r.name == name; });
  return row == memory.end() ? 0 : row->bytes;
}

size_t Plan::device_bytes() const {
  size_t total = 0;
  for (const MemoryRow& row : memory) total += row.on_host ? 0 : row.bytes;
  return total;
}

size_t Plan::host_bytes(int ranks) const {
  size_t total = 0;
  for (const MemoryRow& row : memory) {
    if (!row.on_host || row.name == kDatasetRow) continue;
    total += row.bytes * static_cast<size_t>((ranks + row.sharers - 1) / row.sharers);
  }
  return total + weights_copy_bytes() * static_cast<size_t>(ranks);
}

size_t Plan::weights_copy_bytes() const {
  const bool fp32 = compute == DType::kF32;
  if (fp32 && !shards_parameters && device_bytes() == 0) return 0;
  return static_cast<size_t>(layout.elements) * (sizeof(float) + (fp32 ? 0 : size_of(compute)));
}

namespace {

size_t flat_bytes_of(const Plan& plan, DType dtype) {
  return static_cast<size_t>(plan.layout.elements) * size_of(dtype);
}

// Bytes of an array of floats without the frozen parameters.
size_t trained_bytes_of(const Plan& plan) {
  return static_cast<size_t>(plan.layout.trained()) * sizeof(float);
}

const char* written(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bf16";
    case DType::kF16: return "fp16";
    default: return "fp32";
  }
}

MemoryRow parameters_row(const Plan& plan) {
  MemoryRow row = {kParametersRow,
                   flat_bytes_of(plan, plan.compute),
                   fmt::format("{} parameters, {}", plan.layout.parameters, written(plan.compute))};
  if (plan.layout.frozen_parameters > 0)
    row.note += fmt::format(", {} of them frozen", plan.layout.frozen_parameters);
  if (plan.shards_parameters) {
    row.bytes /= static_cast<size_t>(plan.topology.ranks());
    row.note += fmt::format(", 1/{} of them on this rank", plan.topology.ranks());
  }
  if (plan.shares_parameters()) {
    row.sharers = plan.topology.per_node;
    row.note += fmt::format(", one copy for the {} ranks of a node", row.sharers);
  }
  return row;
}

// Bytes of the moments of the owner with the most, if each of `parts` owners has one part of every
// bucket.
size_t moment_bytes(const Plan& plan, const PlanOptions& options, size_t parts) {
  const size_t elements = static_cast<size_t>(plan.layout.trained()) / parts;
  const size_t all = elements * (static_cast<size_t>(options.moments) * sizeof(float) +
                                 static_cast<size_t>(options.half_moments) * sizeof(uint16_t));
  if (options.muon == nullptr) return all;
  const auto second = static_cast<size_t>(max_outside(
      plan.buckets, one_moment_ranges(*options.muon, plan.layout), static_cast<int>(parts)));
  const size_t moment = options.half_moments > 0 ? sizeof(uint16_t) : sizeof(float);
  return all - (elements - second) * moment;
}

std::string moments_note(const PlanOptions& options) {
  const int all = options.moments + options.half_moments;
  std::string note = fmt::format("{} a parameter", all);
  if (options.half_moments > 0)
    note +=
        options.moments == 0 ? ", bf16" : fmt::format(", {} of them bf16", options.half_moments);
  return options.muon == nullptr ? note : note + ", one fewer for Muon's matrices";
}

// The copies from which a checkpoint is written while training continues: a rank writes its part of
// the moments, rank 0 the weights.
std::vector<MemoryRow> snapshot_rows(const Plan& plan, const PlanOptions& options) {
  const size_t flat_bytes = static_cast<size_t>(plan.layout.elements) * sizeof(float);
  const int ranks = options.topology.ranks();
  MemoryRow weights = {kWeightsSnapshotRow, flat_bytes, "fp32, for checkpoints", true};
  weights.sharers = ranks;
  if (ranks > 1) weights.note += ", on rank 0 alone";
  return {weights,
          {kMomentsSnapshotRow,
           moment_bytes(plan, options, static_cast<size_t>(ranks)),
           ranks == 1 ? "for checkpoints" : fmt::format("for checkpoints, 1/{} of them", ranks),
           true}};
}

std::vector<MemoryRow> host_rows(const Plan& plan, const PlanOptions& options) {
  std::vector<MemoryRow> rows;
  if (options.snapshot) rows = snapshot_rows(plan, options);
  const std::vector<MemoryRow> data = {
      {kTrainBatchesRow, options.train_batch_bytes, "read ahead by the loader", true},
      {kEvalBatchesRow, options.eval_batch_bytes, "read ahead by the loader", true},
      {kEvalScoresRow, options.eval_score_bytes, "for the metrics of the task", true},
      {kDatasetRow, options.dataset_bytes, "decoded or mapped; ranks share it if mapped", true}};
  rows.insert(rows.end(), data.begin(), data.end());
  return rows;
}

// All programs of a plan, in the order of their constants in memory.
std::vector<ProgramPlan*> programs_of(Plan& plan) {
  std::vector<ProgramPlan*> programs = {&plan.training, &plan.evaluation};
  for (auto* length_buckets : {&plan.length_bucket_training, &plan.length_bucket_evaluation})
    for (ProgramPlan& program : *length_buckets) programs.push_back(&program);
  return programs;
}

void place_constants(Plan& plan) {
  for (ProgramPlan* program : programs_of(plan)) {
    for (PlacedTensor& constant : program->constants) constant.offset += plan.constant_bytes;
    plan.constant_bytes += program->constant_bytes;
  }
}

void add_constants_row(const Plan& plan, std::vector<MemoryRow>& rows) {
  if (plan.constant_bytes > 0)
    rows.push_back({kConstantsRow, plan.constant_bytes, "tables of the model's file"});
}

std::vector<MemoryRow> evaluation_memory(const Plan& plan) {
  std::vector<MemoryRow> rows = {parameters_row(plan),
                                 {kArenaRow,
                                  max_arena_bytes(plan.evaluation, plan.length_bucket_evaluation),
                                  "of one lane, by lifetime"}};
  add_constants_row(plan, rows);
  return rows;
}

// The memory that compression of the gradients keeps from step to step.
std::vector<MemoryRow> compression_rows(const Plan& plan) {
  if (plan.residual_groups == 0) return {};
  const int local_groups = plan.residual_groups / plan.topology.ranks();
  if (plan.power_sgd)
    return {{kResidualsRow,
             trained_bytes_of(plan) * static_cast<size_t>(local_groups),
             fmt::format("fp32, of {} group{} of lanes on this rank",
                         local_groups,
                         local_groups == 1 ? "" : "s")},
            {kFactorsRow,
             static_cast<size_t>(plan.power_sgd->factor_elements(plan.topology)) * sizeof(float),
             fmt::format("of {} matrices, and what is sent uncompressed",
                         plan.power_sgd->matrices.size())}};
  const ErrorFeedbackLayout layout(plan.lanes,
                                   plan.residual_groups,
                                   plan.topology,
                                   /*rank=*/0,  // all ranks have as many
                                   plan.layout.trained());
  return {{kResidualsRow,
           static_cast<size_t>(layout.elements()) * sizeof(uint16_t),
           fmt::format("bf16, of the sums over {} group{} of lanes",
                       plan.residual_groups,
                       plan.residual_groups == 1 ? "" : "s")}};
}

std::string partial_sums(int count, int local_lanes) {
  return fmt::format("{} partial sum{} for {} lane{} a rank",
                     count,
                     count == 1 ? "" : "s",
                     local_lanes,
                     local_lanes == 1 ? "" : "s");
}

std::vector<MemoryRow> training_memory(const Plan& plan, const PlanOptions& options) {
  const int local_lanes = options.lanes / options.topology.ranks();
  const int counted = plan.power_sgd ? options.lanes / plan.residual_groups : local_lanes;
  const int sums =
      gradient_buffers(plan.interleaved_lanes ? local_lanes : counted, plan.interleaved_lanes);
  const int buffers = plan.shards_gradients ? 1 : sums;
  const size_t gradient_bytes = static_cast<size_t>(plan.gradient_elements) * sizeof(float);
  const size_t arenas = plan.interleaved_lanes ? static_cast<size_t>(local_lanes) : 1;
  const size_t flat_bytes = trained_bytes_of(plan),
               ranks = static_cast<size_t>(options.topology.ranks()),
               updaters = plan.shards_optimizer ? ranks : 1;
  const std::string share = updaters == 1 ? "" : fmt::format(", 1/{} of them on this rank", ranks);
  const int64_t staging = staging_elements(plan.exchanged_elements, options.topology);
  std::vector<MemoryRow> rows = {parameters_row(plan)};
  if (plan.shards_parameters)
    rows.push_back({kGatheredRow,
                    std::max(plan.training.gathered_bytes, plan.evaluation.gathered_bytes),
                    "of the blocks being read, by lifetime"});
  if (plan.compute != DType::kF32)
    rows.push_back({kMastersRow, flat_bytes / updaters, "fp32" + share});
  rows.push_back({kGradientsRow,
                  gradient_bytes * static_cast<size_t>(buffers),
                  plan.shards_gradients ? "fp32, of the buckets in flight"
                                        : "fp32, " + partial_sums(buffers, local_lanes)});
  if (plan.shards_gradients)
    rows.push_back({kGradientSumsRow,
                    flat_bytes / ranks * static_cast<size_t>(sums),
                    fmt::format("fp32, 1/{} of them on this rank, {}",
                                options.topology.ranks(),
                                partial_sums(sums, local_lanes))});
  const std::vector<MemoryRow> others = {
      {kMomentsRow, moment_bytes(plan, options, updaters), moments_note(options) + share},
      {kArenaRow,
       std::max(arenas * max_arena_bytes(plan.training, plan.length_bucket_training),
                max_arena_bytes(plan.evaluation, plan.length_bucket_evaluation)),
       arenas == 1 ? "of one lane, by lifetime"
                   : fmt::format("of {} lanes that run together, by lifetime", arenas)},
      {kStagingRow,
       static_cast<size_t>(staging) * sizeof(float),
       plan.wire == DType::kF32
           ? "other ranks' gradients, of the buckets in flight"
           : fmt::format("{} gradients sent and received, of the buckets in flight",
                         written(plan.wire))},
  };
  rows.insert(rows.end(), others.begin(), others.end());
  add_constants_row(plan, rows);
  if (plan.muon)
    rows.push_back({kMuonRow,
                    plan.muon->bytes(),
                    fmt::format("one of {} at a time, and messages", plan.muon->matrices.size())});
  const std::vector<MemoryRow> kept = compression_rows(plan);
  rows.insert(rows.end(), kept.begin(), kept.end());
  return rows;
}

// All rows of the plan, in the order of the table.
std::vector<MemoryRow> memory_rows(const Plan& plan, const PlanOptions& options) {
  std::vector<MemoryRow> rows =
      options.evaluation_only ? evaluation_memory(plan) : training_memory(plan, options);
  if (options.separate_memory) {
    rows.push_back({kDeviceBatchesRow, options.device_batch_bytes, "of the lanes in flight"});
    rows.push_back({kLibrariesRow, options.library_bytes, "for matrix products and sums"});
    // One reservation holds all rows, each at an aligned address.
    for (MemoryRow& row : rows)
      row.bytes = (row.bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  }
  const std::vector<MemoryRow> host = host_rows(plan, options);
  rows.insert(rows.end(), host.begin(), host.end());
  if (options.separate_memory) return rows;
  for (MemoryRow& row : rows) row.on_host = true;
  return rows;
}

// Elements of the two factors that are sent in place of the gradients.
int64_t factors_sent(const Plan& plan) {
  return plan.power_sgd->lefts(plan.topology).padded() +
         plan.power_sgd->rights(plan.topology).padded();
}

// Bytes that a rank sends in a step.
void count_traffic(Plan& plan) {
  const std::vector<Range> buckets = plan.all_buckets();
  const auto elements = [&](const std::vector<GatherItem>& items) {
    int64_t sum = 0;
    for (const GatherItem& item : items) sum += buckets[static_cast<size_t>(item.bucket)].size();
    return sum;
  };
  const int64_t statistics = plan.layout.trained() - plan.layout.statistics_begin;
  const auto gradient_bytes =
      plan.power_sgd ? static_cast<int64_t>(sizeof(float)) * factors_sent(plan)
                     : static_cast<int64_t>(size_of(plan.wire)) * plan.layout.statistics_begin +
                           static_cast<int64_t>(sizeof(float)) * statistics;
  const LocalLanes local = plan.lanes_of(0);
  const int sums = local.stride > 1 ? local.count : 1;  // the sums that go across the ranks
  const int gathers = plan.training.gathers_each_run ? local.count : 1;
  // On each level a rank sends all of its part of the gradients except one of `count` parts, and
  // gathers receive the same amount back.
  int64_t bytes =
      sums * gradient_bytes + (plan.power_sgd ? gradient_bytes : 0) +
      static_cast<int64_t>(sizeof(float)) * elements(plan.gradient_gathers) +
      static_cast<int64_t>(size_of(plan.wire)) * elements(plan.rounded_gathers) +
      static_cast<int64_t>(size_of(plan.compute)) * gathers * elements(plan.training.gathers);
  const std::vector<RankGroup> groups = plan.topology.groups_of(0);
  for (size_t level = 0; level < groups.size(); ++level) {
    const RankGroup& group = groups[level];
    const int64_t sent = bytes / group.count * (group.count - 1);
    if (level > 0 || !plan.topology.shares_memory) plan.wire_bytes += sent;
    plan.network_bytes = plan.topology.nodes > 1 ? sent : 0;  // of the last level
    bytes /= group.count;
  }
  if (!plan.muon) return;
  const int ranks = plan.topology.ranks(), others = ranks - plan.topology.per_node;
  const int64_t sent = plan.muon->sent_bytes();
  plan.wire_bytes += sent;
  if (ranks > 1) plan.network_bytes += sent / (ranks - 1) * others;
}

// The trained matrices, with the first extent as the rows; no running statistics.
std::vector<FlatMatrix> matrices_of(const ParameterLayout& layout) {
  std::vector<FlatMatrix> matrices;
  for (const ParameterSlot& slot : layout.slots) {
    if (slot.shape.rank() < 2 || slot.running_momentum > 0 || slot.frozen) continue;
    const int64_t rows = slot.shape[0];
    matrices.push_back({slot.offset, rows, slot.elements / rows});
  }
  std::sort(matrices.begin(), matrices.end(), [](const FlatMatrix& a, const FlatMatrix& b) {
    return a.offset < b.offset;
  });
  return matrices;
}

}  // namespace

double usual_bucket_mib(const Graph& training, DType wire) {
  constexpr double kCost = 128.0 * 1024, kMiB = 1024.0 * 1024;
  double elements = 0;
  for (const TensorId parameter : training.parameters) {
    if (!training[parameter].frozen)
      elements += static_cast<double>(training.shape(parameter).elements());
  }
  const auto element_bytes = static_cast<double>(size_of(wire));
  const double mib =
      std::sqrt(elements * element_bytes * kCost) / element_bytes * sizeof(float) / kMiB;
  return std::clamp(std::round(10 * mib) / 10, 0.1, 1024.0);
}

Plan make_plan(const Graph& training,
               const Graph* evaluation,
               const PlanOptions& options,
               const WorkspaceBytes& workspace_bytes,
               const LengthBucketGraphs& length_buckets) {
  Plan plan;
  plan.topology = options.topology;
  plan.shards_optimizer = options.zero_stage >= 1;
  plan.shards_gradients = options.zero_stage >= 2;
  plan.shards_parameters = options.zero_stage >= 3;
  plan.lanes = options.lanes;
  plan.wire = options.wire;
  plan.residual_groups = options.residual_groups;
  plan.interleaved_lanes = training.crosses_lanes();
  LOCKSTEP_CHECK(!plan.replicated_sums() || (plan.topology.nodes == 1 && options.power_sgd == 0));
  const auto bucket_elements =
      static_cast<int64_t>(options.bucket_mib * 1024 * 1024 / sizeof(float));
  plan.layout = make_layout(training, options.lanes, bucket_elements);
  for (const Range& bucket : cut_buckets(plan.layout, bucket_elements))
    (bucket.begin < plan.layout.trained() ? plan.buckets : plan.frozen_buckets).push_back(bucket);
  if (options.power_sgd > 0)
    plan.power_sgd = power_sgd_layout(matrices_of(plan.layout),
                                      plan.layout.trained(),
                                      options.power_sgd,
                                      options.residual_groups);
  if (!plan.power_sgd)
    plan.exchanged_elements =
        exchanged_elements(plan.buckets, /*saves_memory=*/plan.shards_gradients);
  if (!training.parameters.empty()) plan.compute = training[training.parameters[0]].dtype;
  plan.training = plan_program(training, workspace_bytes);
  plan.training.buckets_after_op = bucket_schedule(training, plan.layout, plan.buckets);
  plan.gradient_elements = plan.layout.trained();
  if (plan.shards_gradients) share_gradient_memory(training, plan);
  if (evaluation != nullptr) plan.evaluation = plan_program(*evaluation, workspace_bytes);
  const size_t element_bytes = size_of(plan.compute);
  if (plan.shards_parameters) {
    const std::vector<Range> all = plan.all_buckets();
    gather_blocks(training, plan.layout, all, element_bytes, plan.training);
    if (evaluation != nullptr)
      gather_blocks(*evaluation, plan.layout, all, element_bytes, plan.evaluation);
  } else if (!plan.shards_optimizer && !plan.power_sgd && !plan.replicated_sums()) {
    const bool rounds = plan.wire != DType::kF32 && plan.topology.ranks() > 1;
    const size_t rounded = rounds ? plan.gradient_buckets() : 0;
    plan.rounded_gathers = staged_gathers(
        plan.buckets,
        rounded,
        size_of(plan.wire),
        static_cast<size_t>(staging_elements(plan.exchanged_elements, plan.topology)) *
            sizeof(float));
    for (size_t b = rounded; b < plan.buckets.size(); ++b)
      plan.gradient_gathers.push_back(
          {static_cast<int>(b), static_cast<size_t>(plan.buckets[b].begin) * sizeof(float)});
  } else if (plan.shards_optimizer) {
    gather_in_place(training, plan.layout, plan.buckets, element_bytes, plan.training);
  }
  for (const Graph& graph : length_buckets.training)
    plan.length_bucket_training.push_back(
        plan_length_bucket(graph, training, plan.training, workspace_bytes));
  for (const Graph& graph : length_buckets.evaluation)
    plan.length_bucket_evaluation.push_back(
        plan_length_bucket(graph, *evaluation, plan.evaluation, workspace_bytes));

  place_constants(plan);
  if (options.muon != nullptr && !options.evaluation_only)
    plan.muon = make_muon_layout(*options.muon, plan, options.newton_schulz_bytes);

  plan.memory = memory_rows(plan, options);
  if (const size_t bytes = recorded_bytes(training, plan, options.recordings); bytes > 0)
    plan.memory.push_back({kGraphsRow, bytes, "taken by the driver, an upper estimate"});
  if (options.evaluation_only) return plan;
  count_traffic(plan);
  return plan;
}

std::string memory_table(const Plan& plan) {
  std::string text = fmt::format("{:<28}{:>16}\n", "memory of one rank", "bytes");
  const auto row = [&](const MemoryRow& r) {
    text += fmt::format("  {:<26}{:>16}  {}\n", r.name, r.bytes, r.note);
  };
  const auto total = [&](const char* name, size_t bytes) {
    row({name, bytes, fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1024 * 1024))});
  };
  for (const MemoryRow& r : plan.memory) {
    if (!r.on_host) row(r);
  }
  if (plan.device_bytes() > 0) total("total on the GPU", plan.device_bytes());
  for (const MemoryRow& r : plan.memory) {
    if (r.on_host) row(r);
  }
  const size_t host = plan.memory_bytes() - plan.device_bytes();
  total(plan.device_bytes() > 0 ? "total on the host" : "total", host);
  if (plan.weights_copy_bytes() > 0)
    row({"temporarily on the host",
         plan.weights_copy_bytes(),
         "a copy of the weights, while they are initialised, saved or loaded"});
  return text;
}

}  // namespace lockstep
