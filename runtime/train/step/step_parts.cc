#include "runtime/train/step/step_parts.h"

namespace lockstep {

std::unique_ptr<TensorNorms> make_tensor_norms(const RunParts& parts) {
  if (!is_layer_wise(parts.config.optimizer)) return nullptr;
  return std::make_unique<TensorNorms>(parts.plan,
                                       adapted_slots(parts.config.optimizer, parts.plan.layout),
                                       parts.communicator,
                                       parts.backend);
}

std::unique_ptr<MuonDirections> make_muon(const RunParts& parts,
                                          const RunMemory& memory,
                                          const OwnedFloats& gradients) {
  if (!parts.plan.muon) return nullptr;
  return std::make_unique<MuonDirections>(
      parts.plan, parts.slices, parts.backend, gradients, memory.muon);
}

std::unique_ptr<PowerSgd> make_power_sgd(const RunParts& parts, const RunMemory& memory) {
  const Plan& plan = parts.plan;
  if (!plan.power_sgd) return nullptr;
  return std::make_unique<PowerSgd>(
      RankCommunicators{parts.slices, parts.communicator},
      parts.backend,
      parts.backend.power_sgd(),
      PowerSgd::Options{*plan.power_sgd, plan.lanes, plan.topology, plan.layout.trained()},
      PowerSgd::Memory{reinterpret_cast<float*>(memory.residuals), memory.factors});
}

ReducerOptions reducer_options(const RunParts& parts,
                               const RunMemory& memory,
                               CompressedAllReduce* compressed) {
  const Plan& plan = parts.plan;
  const bool rounds = compressed == nullptr && plan.residual_groups > 0;
  const bool sums_bits = parts.config.guard.enabled && !parts.backend.ops().separate_memory;
  return {.lanes = plan.lanes,
          .fast_order = parts.config.comm.order == CommConfig::Order::kFast,
          .buckets = plan.buckets,
          .topology = plan.topology,
          .exchanged_elements = plan.exchanged_elements,
          .gradient_buckets = plan.gradient_buckets(),
          .lanes_together = plan.lanes_together,
          .bucket_offsets = plan.bucket_offsets,
          .bucket_gaps = plan.bucket_gaps,
          .gradient_elements = plan.gradient_elements,
          .sums = {memory.gradient_sums, /*packed=*/true},
          .sums_everywhere = plan.sums_everywhere(),
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

FlatWeights weights_of(const RunParts& parts, const RunMemory& memory) {
  return {memory.parameters, parts.plan.compute, memory.masters, parts.plan.shards_parameters};
}

std::unique_ptr<WeightAverage> make_average(const RunParts& parts,
                                            const RunMemory& memory,
                                            Optimizer& optimizer) {
  if (parts.config.train.ema_decay == 0) return nullptr;
  return std::make_unique<WeightAverage>(
      parts.config.train.ema_decay,
      optimizer.pieces(),
      parts.backend,
      weights_of(parts, memory),
      reinterpret_cast<float*>(memory.moments + optimizer.moment_begin(optimizer.moments())),
      optimizer.state_sums());
}

std::vector<std::unique_ptr<RepeatedWork>> make_recordings(Backend& backend,
                                                           size_t lengths,
                                                           int lanes) {
  constexpr size_t kMost = 16;  // each takes memory of the device's driver
  size_t count = 1;
  for (int lane = 0; lane < lanes && count <= kMost; ++lane) count *= lengths;
  std::vector<std::unique_ptr<RepeatedWork>> recordings;
  if (count > kMost) return recordings;
  for (size_t i = 0; i < count; ++i) recordings.push_back(backend.repeated_work());
  return recordings;
}

}  // namespace lockstep
