#include "runtime/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/error.h"
#include "runtime/plan/layout.h"

namespace lockstep {

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

namespace {

size_t flat_bytes_of(const Plan& plan) {
  return static_cast<size_t>(plan.layout.elements) * sizeof(float);
}

MemoryRow parameters_row(const Plan& plan) {
  return {kParametersRow,
          flat_bytes_of(plan),
          fmt::format("{} parameters, fp32", plan.layout.parameters)};
}

std::vector<MemoryRow> evaluation_memory(const Plan& plan, const PlanOptions& options) {
  return {parameters_row(plan),
          {kArenaRow, plan.evaluation.arena_bytes, "of one lane, by lifetime"},
          {kEvalBatchesRow, options.eval_batch_bytes, "read ahead by the loader"},
          {kDatasetRow, options.dataset_bytes, "decoded or mapped; shared by ranks where mapped"}};
}

std::vector<MemoryRow> training_memory(const Plan& plan, const PlanOptions& options) {
  const int local_lanes = options.lanes / options.ranks;
  const int buffers = gradient_buffers(local_lanes);
  const size_t flat_bytes = flat_bytes_of(plan), ranks = static_cast<size_t>(options.ranks);
  const int64_t staging = staging_elements(plan.buckets, options.ranks);
  return {
      parameters_row(plan),
      {kGradientsRow,
       flat_bytes * static_cast<size_t>(buffers),
       fmt::format("{} partial sum{} for {} lane{} a rank",
                   buffers,
                   buffers == 1 ? "" : "s",
                   local_lanes,
                   local_lanes == 1 ? "" : "s")},
      {kMomentsRow,
       flat_bytes / ranks * static_cast<size_t>(options.moments),
       fmt::format("{} a parameter, 1/{} of them on this rank", options.moments, options.ranks)},
      {kArenaRow,
       std::max(plan.training.arena_bytes, plan.evaluation.arena_bytes),
       "of one lane, by lifetime"},
      {kStagingRow,
       static_cast<size_t>(staging) * sizeof(float),
       "other ranks' gradients, two buckets"},
      {kTrainBatchesRow, options.train_batch_bytes, "read ahead by the loader"},
      {kEvalBatchesRow, options.eval_batch_bytes, "read ahead by the loader"},
      {kDatasetRow, options.dataset_bytes, "decoded or mapped; shared by ranks where mapped"},
  };
}

}  // namespace

Plan make_plan(const Graph& training,
               const Graph* evaluation,
               const PlanOptions& options,
               const WorkspaceBytes& workspace_bytes) {
  Plan plan;
  plan.ranks = options.ranks;
  plan.lanes = options.lanes;
  plan.layout = make_layout(training, options.lanes);
  const double bucket_elements = options.bucket_mib * 1024 * 1024 / sizeof(float);
  plan.buckets =
      make_buckets(plan.layout.elements, options.lanes, static_cast<int64_t>(bucket_elements));
  plan.training = plan_program(training, workspace_bytes);
  plan.training.buckets_after_op = bucket_schedule(training, plan.layout, plan.buckets);
  if (evaluation != nullptr) plan.evaluation = plan_program(*evaluation, workspace_bytes);

  if (options.evaluation_only) {
    plan.memory = evaluation_memory(plan, options);
  } else {
    plan.memory = training_memory(plan, options);
    // Reduce-scatter and all-gather each send all slices but one's own.
    const int64_t flat_bytes = plan.layout.elements * static_cast<int64_t>(sizeof(float));
    plan.wire_bytes = 2 * flat_bytes / options.ranks * (options.ranks - 1);
  }
  if (options.device_batch_bytes > 0)
    plan.memory.push_back(
        {kDeviceBatchesRow, options.device_batch_bytes, "of the lanes under way"});
  return plan;
}

std::string memory_table(const Plan& plan) {
  std::string text = fmt::format("{:<28}{:>16}  {}\n", "memory of one rank", "bytes", "");
  for (const MemoryRow& row : plan.memory)
    text += fmt::format("  {:<26}{:>16}  {}\n", row.name, row.bytes, row.note);
  text += fmt::format("  {:<26}{:>16}  {:.1f} MiB\n",
                      "total",
                      plan.memory_bytes(),
                      static_cast<double>(plan.memory_bytes()) / (1024 * 1024));
  return text;
}

}  // namespace lockstep
