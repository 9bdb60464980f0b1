#include "runtime/train/step/step_parts.h"

namespace lockstep {

std::unique_ptr<TensorNorms> make_tensor_norms(const RunContext& context) {
  if (!is_layer_wise(context.config.optimizer)) return nullptr;
  return std::make_unique<TensorNorms>(context.plan,
                                       adapted_slots(context.config.optimizer, context.plan.layout),
                                       context.communicator,
                                       context.backend);
}

std::unique_ptr<MuonDirections> make_muon(const RunContext& context,
                                          const RunMemory& memory,
                                          const OwnedFloats& gradients) {
  if (!context.plan.muon) return nullptr;
  return std::make_unique<MuonDirections>(
      context.plan, context.slices, context.backend, gradients, memory.muon);
}

std::unique_ptr<PowerSgd> make_power_sgd(const RunContext& context, const RunMemory& memory) {
  const Plan& plan = context.plan;
  if (!plan.power_sgd) return nullptr;
  return std::make_unique<PowerSgd>(
      RankCommunicators{context.slices, context.communicator},
      context.backend,
      context.backend.power_sgd(),
      PowerSgd::Options{*plan.power_sgd, plan.lanes, plan.topology, plan.layout.trained()},
      PowerSgd::Memory{reinterpret_cast<float*>(memory.residuals), memory.factors});
}

ReducerOptions reducer_options(const RunContext& context,
                               const RunMemory& memory,
                               CompressedAllReduce* compressed) {
  const Plan& plan = context.plan;
  const bool rounds = compressed == nullptr && plan.residual_groups > 0;
  const bool sums_bits = context.config.guard.enabled && !context.backend.ops().separate_memory;
  return {.lanes = plan.lanes,
          .fast_order = context.config.comm.order == CommConfig::Order::kFast,
          .buckets = plan.buckets,
          .topology = plan.topology,
          .exchanged_elements = plan.exchanged_elements,
          .gradient_buckets = plan.gradient_buckets(),
          .interleaved_lanes = plan.interleaved_lanes,
          .bucket_offsets = plan.bucket_offsets,
          .bucket_gaps = plan.bucket_gaps,
          .gradient_elements = plan.gradient_elements,
          .sums = {memory.gradient_sums, /*packed=*/true},
          .replicated_sums = plan.replicated_sums(),
          .wire = plan.wire,
          .residual_groups = rounds ? plan.residual_groups : 0,
          .residuals = rounds ? reinterpret_cast<uint16_t*>(memory.residuals) : nullptr,
          .tensor_begins = sums_bits ? plan.layout.begins() : std::vector<int64_t>(),
          .compressed = compressed};
}

BucketAllGather::Memory gather_memory(const Plan& plan, const RunMemory& memory) {
  if (!plan.shards_optimizer) return {.gathered = reinterpret_cast<std::byte*>(memory.gradients)};
  return {.gathered = memory.gathered,
          .owned = plan.shards_parameters ? memory.parameters : nullptr,
          .element_bytes = size_of(plan.compute)};
}

SumAllGather::Memory sum_all_gather_memory(const Plan& plan, const RunMemory& memory) {
  return {memory.gradients, reinterpret_cast<std::byte*>(memory.staging), plan.wire};
}

FlatWeights weights_of(const RunContext& context, const RunMemory& memory) {
  return {memory.parameters, context.plan.compute, memory.masters, context.plan.shards_parameters};
}

std::unique_ptr<WeightAverage> make_average(const RunContext& context,
                                            const RunMemory& memory,
                                            Optimizer& optimizer) {
  if (context.config.train.ema_decay == 0) return nullptr;
  return std::make_unique<WeightAverage>(
      context.config.train.ema_decay,
      optimizer.pieces(),
      context.backend,
      weights_of(context, memory),
      reinterpret_cast<float*>(memory.moments + optimizer.moment_begin(optimizer.moments())),
      optimizer.state_checksums());
}

size_t recordings_of(size_t lengths, int lanes) {
  constexpr size_t kMax = 16;  // each one takes memory of the device's driver
  size_t count = 1;
  for (int lane = 0; lane < lanes && count <= kMax; ++lane) count *= lengths;
  return count > kMax ? 0 : count;
}

std::vector<std::unique_ptr<RepeatedWork>> make_recordings(Backend& backend,
                                                           size_t lengths,
                                                           int lanes) {
  std::vector<std::unique_ptr<RepeatedWork>> recordings;
  for (size_t i = 0; i < recordings_of(lengths, lanes); ++i)
    recordings.push_back(backend.repeated_work());
  return recordings;
}

}  // namespace lockstep
