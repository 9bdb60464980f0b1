#include "runtime/train/step/step_exchange.h"

#include "collectives/reduce/compressed_exchange.h"
#include "collectives/reduce/lane_exchange.h"
#include "collectives/reduce/library_exchange.h"
#include "collectives/reduce/tree_exchange.h"

namespace lockstep::train {
namespace {

std::unique_ptr<collectives::PowerSgd> make_power_sgd(const RunContext& context,
                                                      const RunMemory& memory) {
  const plan::Plan& plan = context.plan;
  if (!plan.traffic.power_sgd) return nullptr;
  return std::make_unique<collectives::PowerSgd>(
      collectives::RankCommunicators{context.slices, context.communicator},
      context.backend,
      context.backend.power_sgd(),
      collectives::PowerSgd::Options{
          *plan.traffic.power_sgd, plan.sharding.topology, plan.layout.trained()},
      collectives::PowerSgd::Memory{reinterpret_cast<float*>(memory.residuals), memory.factors});
}

collectives::GradientExchangeSetup setup_of(const RunContext& context, const RunMemory& memory) {
  const plan::ParameterLayout& layout = context.plan.layout;
  const plan::ShardingPlan& sharding = context.plan.sharding;
  const bool sums_bits = context.config.guard.enabled && !context.backend.ops().separate_memory;
  return {.communicators = {context.slices, context.communicator, context.node},
          .math = context.backend,
          .shares = sharding.shares(),
          .topology = sharding.topology,
          .gradients = {.data = memory.gradients,
                        .elements = layout.gradient_elements,
                        .buckets = layout.buckets,
                        .gradient_buckets = layout.gradient_buckets(),
                        .offsets = layout.bucket_offsets,
                        .gaps = layout.bucket_gaps},
          .sums = {memory.gradient_sums, /*packed=*/true},
          .measures = {.tensor_begins = sums_bits ? layout.begins() : std::vector<int64_t>()},
          .rows = {context.plan.traffic.rows, memory.gradient_rows}};
}

// `compressed`: null if the gradients themselves are exchanged.
std::unique_ptr<collectives::GradientExchange> make_gradient_exchange(
    const RunContext& context,
    const RunMemory& memory,
    collectives::CompressedAllReduce* compressed) {
  const plan::ShardingPlan& sharding = context.plan.sharding;
  const plan::TrafficPlan& traffic = context.plan.traffic;
  const collectives::GradientExchangeSetup setup = setup_of(context, memory);
  const collectives::StagingMemory staging = {memory.staging, traffic.exchanged_elements};
  if (compressed != nullptr)
    return std::make_unique<collectives::CompressedExchange>(setup, *compressed);
  if (sharding.library_order && sharding.topology.ranks() > 1)
    return std::make_unique<collectives::LibraryExchange>(setup, staging);
  if (setup.shares.order == collectives::LaneOrder::kEachSummed)
    return std::make_unique<collectives::LaneExchange>(
        setup, collectives::LaneExchange::Options{staging, traffic.wire});
  const collectives::WireRounding wire = {
      traffic.wire,
      sharding.residual_groups > 0 ? reinterpret_cast<uint16_t*>(memory.residuals) : nullptr};
  return std::make_unique<collectives::TreeExchange>(
      setup, collectives::TreeExchange::Options{staging, wire, sharding.replicated_sums()});
}

std::span<const collectives::GatherItem> later_sums(const plan::Plan& plan) {
  if (plan.sharding.shards_optimizer()) return {};
  return plan.programs.training.gathers;
}

collectives::BucketAllGather::Memory gather_memory(const plan::Plan& plan,
                                                   const RunMemory& memory) {
  return {.gathered = memory.gathered,
          .owned = plan.sharding.shards_parameters() ? memory.parameters : nullptr,
          .element_bytes = size_of(plan.layout.compute)};
}

}  // namespace

StepExchange::StepExchange(const RunContext& context, const RunMemory& memory)
    : context_(context),
      power_sgd_(make_power_sgd(context, memory)),
      gradients_(make_gradient_exchange(context, memory, power_sgd_.get())),
      totals_(context.communicator, context.lane_shares(), context.node),
      parameter_gather_({context.slices, context.communicator, context.parameters_node()},
                        context.backend,
                        context.plan.sharding.topology,
                        context.plan.layout.all_buckets(),
                        gather_memory(context.plan, memory)),
      sum_gather_(
          {context.slices, context.communicator},
          context.backend,
          context.plan.sharding.topology,
          context.plan.layout.buckets,
          {memory.gradients,
           reinterpret_cast<std::byte*>(memory.staging + context.plan.traffic.staging_elements),
           context.plan.traffic.wire},
          {context.plan.traffic.sum_gathers.rounded,
           context.plan.traffic.sum_gathers.floats,
           later_sums(context.plan)}) {
  if (memory.sums != nullptr)
    device_sums_.emplace(context.slices, context.backend, context.lane_shares(), memory.sums);
  if (!context.plan.traffic.sum_gathers.empty())
    gradients_->on_summed([this](int bucket) { sum_gather_.add_bucket(bucket); });
}

collectives::BucketAllGather& StepExchange::forward_gather() {
  return context_.plan.sharding.shards_optimizer() ? parameter_gather_ : sum_gather_.later();
}

void StepExchange::observe(RunTimeline* timeline) {
  gradients_->observe(timeline);
  totals_.observe(timeline);
  parameter_gather_.observe(timeline);
  sum_gather_.observe(timeline);
  if (power_sgd_) power_sgd_->observe(timeline);
}

void StepExchange::begin_step(collectives::TransferChecksums* checked) {
  gradients_->begin_step(checked);
  totals_.begin_step();
  parameter_gather_.begin_step();
  sum_gather_.begin_step();
  if (power_sgd_) power_sgd_->begin_step();
}

// Unless the work is recorded, parameters that are already there are not gathered again. So nothing
// writes to memory from which a checkpoint is being copied.
void StepExchange::start_gather(GatheredChecksums* checked) {
  if (!context_.plan.sharding.shards_optimizer()) return;
  const plan::ProgramPlan& program = context_.plan.programs.training;
  if (program.gathers_each_run) {
    if (checked != nullptr)
      parameter_gather_.on_arrival(
          [=](int bucket, const std::byte* at) { checked->add(bucket, at); });
  } else if (gathered_ && !context_.backend.ops().separate_memory) {
    parameter_gather_.skip(program.gathers);
  } else {
    parameter_gather_.start(program.gathers);
  }
}

void StepExchange::reduce(GatheredChecksums* checked) {
  context_.backend.mark(exec::Backend::Mark::kBackwardDone);
  gradients_->reduce();
  sum_gather_.finish();
  gradients_->add_rows(/*whole=*/!context_.plan.sharding.shards_optimizer());
  if (checked != nullptr && !context_.plan.programs.training.gathers_each_run) checked->add_all();
  parameter_gather_.on_arrival(nullptr);
  context_.backend.mark(exec::Backend::Mark::kReduced);
}

collectives::StepTotals StepExchange::totals(std::span<const collectives::LaneStatistics> local,
                                             collectives::StepReport report) {
  context_.backend.synchronize();
  report.squares = gradients_->squares();
  return totals_.sum(local, report);
}

collectives::GatheredSums StepExchange::gather_sums(
    std::span<const collectives::LaneStatistics> local) {
  return device_sums_->gather(local, gradients_->squares());
}

collectives::StepTotals StepExchange::reports(const collectives::StepReport& report) {
  const collectives::StepTotals totals = totals_.sum({}, report);
  totals_.wait_was_hidden();
  return totals;
}

void StepExchange::start_later_sums(std::function<void(int bucket)> arrived) {
  sum_gather_.start_later(std::move(arrived));
}

void StepExchange::gather_parameters() {
  const plan::Plan& plan = context_.plan;
  if (plan.sharding.shards_parameters() || gathered_) return;  // no rank holds all, or each does
  if (plan.sharding.shards_optimizer()) parameter_gather_.start(plan.programs.training.gathers);
  forward_gather().finish();
  gathered_ = true;
}

double StepExchange::exposed_ms() const {
  return gradients_->exposed_ms() + totals_.exposed_ms() + parameter_gather_.exposed_ms() +
         sum_gather_.exposed_ms() + (power_sgd_ ? power_sgd_->exposed_ms() : 0) +
         (queued() ? context_.backend.reduce_ms() : 0);
}

bool StepExchange::queued() const {
  return context_.backend.ops().separate_memory && context_.communicator.size() > 1;
}

}  // namespace lockstep::train
