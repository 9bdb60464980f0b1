// The rows of the memory plan: an allocation of a run has a row here and takes row_bytes().
#include <fmt/core.h>

#include <algorithm>

#include "collectives/layout/error_feedback_layout.h"
#include "runtime/base/moment_block.h"
#include "runtime/base/text.h"
#include "runtime/plan/moment_layout.h"
#include "runtime/plan/plan_parts.h"

namespace lockstep::plan {
namespace {

const char* written(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return "bf16";
    case DType::kF16: return "fp16";
    default: return "fp32";
  }
}

// The arena of the program that needs most. All of them run in one arena.
size_t max_arena(const ProgramPlan& full, const std::vector<ProgramPlan>& length_buckets) {
  size_t bytes = full.arena_bytes;
  for (const ProgramPlan& program : length_buckets) bytes = std::max(bytes, program.arena_bytes);
  return bytes;
}

// Makes the rows in the order of the table.
class Rows {
 public:
  Rows(const Plan& plan, const PlanOptions& options)
      : layout_(plan.layout),
        sharding_(plan.sharding),
        programs_(plan.programs),
        traffic_(plan.traffic),
        options_(options) {
    add_parameters();
    if (options.evaluation_only) {
      add_arena(/*lanes=*/0);
      add_constants();
    } else {
      add_training();
    }
    if (options.device) add_device(*options.device);
    for (MemoryRow& row : rows_) row.on_host = !options.device;
    if (traffic_.adafactor)
      add_on_host(RowKind::kFactoredAverages,
                  traffic_.adafactor->host_bytes(),
                  "fp32, of rows and columns, and messages");
    if (options.optimizer.snapshot) add_snapshot();
    add_on_host(RowKind::kTrainBatches, options.data.train_batches, "read ahead by the loader");
    add_on_host(RowKind::kEvalBatches, options.data.eval_batches, "read ahead by the loader");
    add_on_host(RowKind::kEvalScores, options.data.eval_scores, "for the metrics of the task");
    add_on_host(
        RowKind::kDataset, options.data.dataset, "decoded or mapped; ranks share it if mapped");
  }

  std::vector<MemoryRow> take() { return std::move(rows_); }

 private:
  MemoryRow& add(RowKind kind, size_t bytes, std::string note) {
    return rows_.emplace_back(MemoryRow{kind, bytes, std::move(note)});
  }
  MemoryRow& add_on_host(RowKind kind, size_t bytes, std::string note) {
    MemoryRow& row = add(kind, bytes, std::move(note));
    row.on_host = true;
    return row;
  }
  int ranks() const { return sharding_.topology.ranks(); }
  // Bytes of an array of floats without the frozen parameters, or of one of its `parts`.
  size_t trained_bytes(int parts = 1) const {
    return static_cast<size_t>(layout_.trained() / parts) * sizeof(float);
  }

  void add_parameters() {
    MemoryRow& row =
        add(RowKind::kParameters,
            static_cast<size_t>(layout_.elements) * size_of(layout_.compute),
            fmt::format("{} parameters, {}", layout_.parameters, written(layout_.compute)));
    if (layout_.frozen_parameters > 0)
      row.note += fmt::format(", {} of them frozen", layout_.frozen_parameters);
    if (sharding_.shards_parameters()) {
      row.bytes /= static_cast<size_t>(ranks());
      row.note += fmt::format(", 1/{} of them on this rank", ranks());
    }
    if (sharding_.shares_parameters()) {
      row.sharers = sharding_.topology.per_node;
      row.note += fmt::format(", one copy for the {} ranks of a node", row.sharers);
    }
  }

  // `lanes`: the lanes of training that run together.
  void add_arena(size_t lanes) {
    add(RowKind::kArena,
        std::max(max_arena(programs_.training, programs_.length_bucket_training),
                 max_arena(programs_.evaluation, programs_.length_bucket_evaluation)),
        lanes <= 1 ? "of one lane, by lifetime"
                   : fmt::format("of {} lanes that run together, by lifetime", lanes));
  }

  void add_constants() {
    if (programs_.constant_bytes > 0)
      add(RowKind::kConstants, programs_.constant_bytes, "tables of the model's file");
  }

  void add_training() {
    const int local_lanes = sharding_.shares().most();
    const int updaters = sharding_.shards_optimizer() ? ranks() : 1;
    const std::string share =
        updaters == 1 ? "" : fmt::format(", 1/{} of them on this rank", updaters);
    if (sharding_.shards_parameters())
      add(RowKind::kGathered,
          std::max(programs_.training.gathered_bytes, programs_.evaluation.gathered_bytes),
          "of the blocks being read, by lifetime");
    if (layout_.compute != DType::kF32)
      add(RowKind::kMasters, trained_bytes(updaters), "fp32" + share);
    add_gradients(local_lanes);
    add(RowKind::kMoments, moment_bytes(updaters), moments_note() + share);
    add_arena(static_cast<size_t>(sharding_.lanes_together()));
    add(RowKind::kStaging,
        traffic_.staging_bytes(),
        traffic_.wire == DType::kF32
            ? "other ranks' gradients, of the buckets in flight"
            : fmt::format("{} gradients sent and received, of the buckets in flight",
                          written(traffic_.wire)));
    if (!traffic_.rows.tables.empty())
      add(RowKind::kGradientRows,
          traffic_.rows.bytes,
          fmt::format("of {} of all lanes", counted(traffic_.rows.tables.size(), "table")));
    add_constants();
    if (traffic_.muon)
      add(RowKind::kMuon,
          traffic_.muon->bytes(),
          fmt::format("one of {} at a time, and messages", traffic_.muon->matrices.size()));
    if (traffic_.adafactor)
      add(RowKind::kFactoredSums,
          traffic_.adafactor->device_bytes(),
          fmt::format("of squared gradients, of {}",
                      counted(traffic_.adafactor->tensors.size(), "parameter")));
    if (sharding_.residual_groups > 0) add_compression();
  }

  void add_gradients(int local_lanes) {
    const collectives::LaneShares shares = sharding_.shares();
    // With PowerSGD, a group is added up at a time.
    const bool grouped = traffic_.power_sgd && shares.order == collectives::LaneOrder::kInTurn;
    const int sums =
        grouped ? collectives::LaneShares{.lanes = shares.unit}.buffers() : shares.buffers();
    std::string partial_sums =
        fmt::format("{} for {} a rank", counted(sums, "partial sum"), counted(local_lanes, "lane"));
    if (const int at_once = std::min(sharding_.lanes_at_once, local_lanes); at_once > 2)
      partial_sums += fmt::format(", {} added at once", at_once);
    const size_t buffer_bytes = static_cast<size_t>(layout_.gradient_elements) * sizeof(float);
    if (!sharding_.shards_gradients()) {
      add(RowKind::kGradients, buffer_bytes * static_cast<size_t>(sums), "fp32, " + partial_sums);
      return;
    }
    add(RowKind::kGradients, buffer_bytes, "fp32, of the buckets in flight");
    add(RowKind::kGradientSums,
        trained_bytes(ranks()) * static_cast<size_t>(sums),
        fmt::format("fp32, 1/{} of them on this rank, {}", ranks(), partial_sums));
  }

  // What compression of the gradients keeps from step to step.
  void add_compression() {
    const collectives::LaneShares shares = sharding_.shares();
    const int local_groups = shares.most() / shares.unit;
    if (const auto& power_sgd = traffic_.power_sgd) {
      add(RowKind::kResiduals,
          trained_bytes() * static_cast<size_t>(local_groups),
          fmt::format("fp32, of {} of lanes on this rank", counted(local_groups, "group")));
      add(RowKind::kFactors,
          static_cast<size_t>(power_sgd->factor_elements(sharding_.topology)) * sizeof(float),
          fmt::format("of {} matrices, and what is sent uncompressed", power_sgd->matrices.size()));
      return;
    }
    add(RowKind::kResiduals,
        static_cast<size_t>(
            collectives::most_residuals(shares, sharding_.topology, layout_.trained())) *
            sizeof(uint16_t),
        fmt::format("bf16, of the sums over {} of lanes",
                    counted(sharding_.residual_groups, "group")));
  }

  // Bytes of the moments of the owner with the most, if each of `parts` owners has one part of
  // every bucket.
  size_t moment_bytes(int parts) const {
    const PlanOptions::Optimizer& optimizer = options_.optimizer;
    const int64_t elements = layout_.trained() / parts;
    const DType type = moment_type();
    const int kept = optimizer.half_moments + optimizer.block_moments;
    const size_t one = moment_array_bytes(type, elements);
    const size_t all =
        static_cast<size_t>(kept) * one +
        static_cast<size_t>(optimizer.moments) * lockstep::moment_bytes(DType::kF32, elements);
    if (optimizer.config == nullptr) return all;
    const auto holes = ranges_without_last_moment(*optimizer.config, layout_);
    if (holes.empty()) return all;
    return all - one + moment_array_bytes(type, max_outside(layout_.buckets, holes, parts));
  }
  // The type of the optimizer's moments; an average of the weights is of floats.
  DType moment_type() const {
    if (options_.optimizer.block_moments > 0) return DType::kU8;
    return options_.optimizer.half_moments > 0 ? DType::kBF16 : DType::kF32;
  }

  std::string moments_note() const {
    const PlanOptions::Optimizer& optimizer = options_.optimizer;
    const int smaller = optimizer.half_moments + optimizer.block_moments;
    const char* const type = optimizer.block_moments > 0 ? "int8" : "bf16";
    return fmt::format("{} a parameter", optimizer.moments + smaller) +
           (smaller == 0             ? ""
            : optimizer.moments == 0 ? fmt::format(", {}", type)
                                     : fmt::format(", {} of them {}", smaller, type)) +
           (traffic_.muon ? ", one fewer for Muon's matrices" : "") +
           (traffic_.adafactor ? ", none for matrices" : "");
  }

  void add_device(const PlanOptions::Device& device) {
    add(RowKind::kDeviceBatches, device.batch_bytes, "of the lanes in flight");
    if (device.sums_bytes > 0)
      add(RowKind::kSums, device.sums_bytes, "loss and norm, of all ranks and lanes");
    add(RowKind::kLibraries, device.library_bytes, "for matrix products and sums");
    // One reservation holds all rows, each at an aligned address.
    for (MemoryRow& row : rows_)
      row.bytes = (row.bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
  }

  // The copies from which a checkpoint is written while training continues: a rank writes its part
  // of the moments, rank 0 the weights.
  void add_snapshot() {
    const bool alone = ranks() == 1;
    const size_t averages_bytes =
        traffic_.adafactor ? static_cast<size_t>(traffic_.adafactor->averages) * sizeof(float) : 0;
    add_on_host(RowKind::kWeightsSnapshot,
                static_cast<size_t>(layout_.elements) * sizeof(float),
                alone ? "fp32, for checkpoints" : "fp32, for checkpoints, on rank 0 alone")
        .sharers = ranks();
    add_on_host(RowKind::kMomentsSnapshot,
                moment_bytes(ranks()) + averages_bytes,
                alone ? "for checkpoints" : fmt::format("for checkpoints, 1/{} of them", ranks()));
  }

  const ParameterLayout& layout_;
  const ShardingPlan& sharding_;
  const ProgramPlans& programs_;
  const TrafficPlan& traffic_;
  const PlanOptions& options_;
  std::vector<MemoryRow> rows_;
};

// See MemoryPlan::weights_copy_bytes.
size_t weights_copy_bytes(const MemoryPlan& memory, const Plan& plan, const PlanOptions& options) {
  const ParameterLayout& layout = plan.layout;
  const bool halves = layout.compute != DType::kF32;
  const size_t bytes = static_cast<size_t>(layout.elements) * sizeof(float);
  if (options.device)
    return bytes + (halves ? static_cast<size_t>(layout.elements) * size_of(layout.compute) : 0);
  const bool whole =
      halves ? memory.row_bytes(RowKind::kMasters) >= bytes : !plan.sharding.shards_parameters();
  // Between steps the arena and the gradients are free.
  const bool in_gradients =
      !options.evaluation_only && !plan.sharding.shards_gradients() && layout.frozen_elements == 0;
  const bool in_arena = memory.row_bytes(RowKind::kArena) >= bytes;
  return whole || in_gradients || in_arena ? 0 : bytes;
}

}  // namespace

int lanes_at_once(const graph::Graph& training, const Plan& plan, const PlanOptions& options) {
  constexpr size_t kShare = 12;
  // Residuals are kept of each sum of two.
  if (!options.device || options.device->adds_pairs || options.evaluation_only ||
      plan.sharding.residual_groups > 0 || plan.sharding.shares().most() <= 2)
    return 2;
  Plan other = plan;
  other.sharding.lanes_at_once = 2;
  const size_t two = plan_memory(training, other, options).device_bytes();
  for (const int width : {8, 4}) {
    other.sharding.lanes_at_once = width;
    const size_t bytes = plan_memory(training, other, options).device_bytes();
    if (bytes <= two + two / kShare) return width;
  }
  return 2;
}

MemoryPlan plan_memory(const graph::Graph& training, const Plan& plan, const PlanOptions& options) {
  MemoryPlan memory = {Rows(plan, options).take()};
  if (options.device && options.device->recorded_lengths > 0)
    memory.rows.push_back({RowKind::kGraphs,
                           recorded_bytes(training, plan, options.device->recorded_lengths),
                           "taken by the driver, an upper estimate"});
  memory.weights_copy_bytes = weights_copy_bytes(memory, plan, options);
  return memory;
}

}  // namespace lockstep::plan
