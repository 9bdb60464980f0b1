#include "runtime/train/state/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "collectives/gather/gather_parts.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/train/gather_values.h"
#include "runtime/train/number_types.h"

namespace lockstep::train {
namespace {

// Calls f(offset in the flat buffer, offset if packed, elements) for each range.
template <typename F>
void each_range(const std::vector<collectives::Range>& ranges, F f) {
  int64_t local = 0;
  for (const collectives::Range& range : ranges) {
    f(range.begin, local, range.size());
    local += range.size();
  }
}

std::byte* bytes(float* x) { return reinterpret_cast<std::byte*>(x); }

// This rank's parts of the fp32 weights, packed; null if it has no such array.
float* fp32_owned(const plan::Plan& plan, const RunMemory& memory) {
  const bool packed = plan.sharding.shards_parameters() && plan.layout.compute == DType::kF32;
  return packed ? reinterpret_cast<float*>(memory.parameters) : memory.masters;
}

// Memory for a copy of all weights that no step is using, filled with zeros, because padding is to
// be zero. In the gradients the weights' padding lies where the gradients have theirs.
std::span<float> unused_between_steps(const plan::Plan& plan, const RunMemory& memory) {
  const auto elements = static_cast<size_t>(plan.layout.elements);
  const bool in_arena = plan.memory.row_bytes(plan::RowKind::kArena) >= elements * sizeof(float);
  LOCKSTEP_CHECK(in_arena || plan.layout.gradient_elements == plan.layout.elements);
  const std::span<float> floats = {
      in_arena ? reinterpret_cast<float*>(memory.arena) : memory.gradients, elements};
  std::ranges::fill(floats, 0.0f);
  return floats;
}

}  // namespace

float* whole_weights(const plan::Plan& plan, const RunMemory& memory) {
  if (plan.layout.compute == DType::kF32)
    return plan.sharding.shards_parameters() ? nullptr
                                             : reinterpret_cast<float*>(memory.parameters);
  const size_t bytes = static_cast<size_t>(plan.layout.elements) * sizeof(float);
  return plan.memory.row_bytes(plan::RowKind::kMasters) >= bytes ? memory.masters : nullptr;
}

HostWeights::HostWeights(const RunContext& context,
                         const RunMemory& memory,
                         std::span<float> storage)
    : context_(context), memory_(memory) {
  const int64_t all = context.plan.layout.elements;
  if (float* const whole = whole_weights(context.plan, memory)) {
    whole_.emplace(context.backend, whole, all);
    return;
  }
  full_ = storage;
  if (full_.empty() && context.plan.memory.weights_copy_bytes == 0)
    full_ = unused_between_steps(context.plan, memory);
  if (full_.empty()) {
    full_storage_.resize(static_cast<size_t>(all));
    full_ = full_storage_;
  }
  float* const owned = fp32_owned(context.plan, memory);
  if (owned == nullptr) return;
  int64_t elements = 0;
  for (const collectives::Range& range : stored()) elements += range.size();
  masters_.emplace(context.backend, owned, elements);
}

std::vector<collectives::Range> HostWeights::stored() const {
  return sharded() && context_.plan.layout.compute == DType::kF32 ? context_.owned_parameters()
                                                                  : context_.updated();
}

float* HostWeights::read() {
  if (whole_) return whole_->read();
  const float* masters = masters_->read();
  each_range(stored(), [&](int64_t begin, int64_t local, int64_t n) {
    std::copy_n(masters + local, n, full_.data() + begin);
  });
  read_frozen();
  const auto ranks = static_cast<size_t>(context_.communicator.size());
  const plan::Plan& plan = context_.plan;
  for (const collectives::Range& bucket :
       sharded() ? plan.layout.all_buckets() : plan.layout.buckets)
    collectives::gather_parts(context_.communicator,
                              plan.sharding.topology,
                              bytes(full_.data() + bucket.begin),
                              static_cast<size_t>(bucket.size()) / ranks * sizeof(float));
  return full_.data();
}

// Reads the 16-bit numbers that the ops read: all of them, or this rank's part if they are sharded.
void HostWeights::read_frozen() {
  const plan::Plan& plan = context_.plan;
  const DType compute = plan.layout.compute;
  if (compute == DType::kF32 || plan.layout.frozen_buckets.empty()) return;
  const std::vector<collectives::Range> ranges =
      sharded() ? context_.owned_of(plan.layout.frozen_buckets)
                : std::vector<collectives::Range>{{plan.layout.trained(), plan.layout.elements}};
  const int64_t first =
      sharded() ? plan.layout.trained() / context_.communicator.size() : plan.layout.trained();
  each_range(ranges, [&](int64_t begin, int64_t local, int64_t n) {
    const auto size = static_cast<int64_t>(size_of(compute));
    exec::HostCopyOf<std::byte> values(
        context_.backend, memory_.parameters + (first + local) * size, n * size);
    widen_numbers(
        values.read(), compute, full_.subspan(static_cast<size_t>(begin), static_cast<size_t>(n)));
  });
}

void HostWeights::write() {
  if (whole_) {
    whole_->write();
  } else if (masters_) {
    each_range(stored(), [&](int64_t begin, int64_t local, int64_t n) {
      std::copy_n(full_.data() + begin, n, masters_->data() + local);
    });
    masters_->write();
  }
  if (context_.plan.layout.compute != DType::kF32) write_rounded();
}

// Writes the numbers that the ops read, rounded: all of them, or this rank's part if they are
// sharded.
void HostWeights::write_rounded() {
  const plan::ParameterLayout& layout = context_.plan.layout;
  const auto size = static_cast<int64_t>(size_of(layout.compute));
  const int64_t parts = sharded() ? context_.plan.sharding.topology.ranks() : 1;
  exec::HostCopyOf<std::byte> rounded(
      context_.backend, memory_.parameters, layout.elements / parts * size);
  const float* const floats = data();
  const auto round_range = [&](int64_t begin, int64_t local, int64_t n) {
    round_numbers(
        {floats + begin, static_cast<size_t>(n)}, layout.compute, rounded.data() + local * size);
  };
  if (sharded()) {
    each_range(context_.owned_parameters(), round_range);
  } else {
    round_range(0, 0, layout.elements);
  }
  rounded.write();
}

WeightsHash::WeightsHash(const RunContext& context, const RunMemory& memory)
    : context_(context), memory_(memory) {
  const plan::Plan& plan = context.plan;
  const std::vector<collectives::Range> buckets = plan.layout.all_buckets(),
                                        ranges = context.owned_of(buckets);
  const bool floats = plan.layout.compute == DType::kF32;
  uint64_t index = 0;
  for (const plan::ParameterSlot& slot : plan.layout.slots) {
    const int64_t slot_end = slot.offset + slot.elements;
    full_.push_back({slot.offset, slot.elements, index});
    for (size_t bucket = 0; bucket < ranges.size(); ++bucket) {
      const int64_t begin = std::max(ranges[bucket].begin, slot.offset),
                    end = std::min(ranges[bucket].end, slot_end);
      if (begin >= end) continue;
      const int64_t local =
          plan.sharding.owned_index_of(context.communicator.rank(), buckets[bucket], begin);
      const uint64_t number = index + static_cast<uint64_t>(begin - slot.offset);
      if (floats || !slot.frozen) owned_.push_back({local, end - begin, number});
      if (slot.frozen)
        frozen_.push_back({plan.sharding.shards_parameters() ? local : begin, end - begin, number});
    }
    index += static_cast<uint64_t>(slot.elements);
  }
  hashes_ = context.backend.host_array<ContentHash>(
      std::max({full_.size(), owned_.size(), frozen_.size()}));
}

ContentHash WeightsHash::hash(const std::byte* memory,
                              DType dtype,
                              const std::vector<Piece>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i)
    context_.backend.hash(memory + static_cast<size_t>(pieces[i].at) * size_of(dtype),
                          dtype,
                          pieces[i].elements,
                          pieces[i].index,
                          &hashes_[i]);
  context_.backend.synchronize();
  ContentHash sum;
  for (size_t i = 0; i < pieces.size(); ++i) {
    sum.sum += hashes_[i].sum;
    sum.not_finite += hashes_[i].not_finite;
  }
  return sum;
}

WeightsHash::Result WeightsHash::take() {
  const DType compute = context_.plan.layout.compute;
  ContentHash replica;
  if (!context_.plan.sharding.shards_parameters())
    replica = hash(memory_.parameters, compute, full_);
  const float* const owned = fp32_owned(context_.plan, memory_);
  if (owned == nullptr && context_.plan.layout.frozen_buckets.empty())
    return {replica.sum, replica.sum, 0, replica.not_finite == 0};
  struct Hashes {
    ContentHash owned, frozen;
  };
  Hashes mine = {};
  if (owned != nullptr)
    mine.owned = hash(reinterpret_cast<const std::byte*>(owned), DType::kF32, owned_);
  mine.frozen = hash(memory_.parameters, compute, frozen_);
  Result result{0, replica.sum, 0, true};
  for (const Hashes& of_rank : gather_values(context_.communicator, mine)) {
    result.weights += of_rank.owned.sum;
    result.frozen += of_rank.frozen.sum;
    result.finite =
        result.finite && of_rank.owned.not_finite == 0 && of_rank.frozen.not_finite == 0;
  }
  if (owned == nullptr) {
    result.weights = replica.sum;
    result.finite = replica.not_finite == 0;
  } else if (compute != DType::kF32) {
    result.weights += result.frozen;  // which have no masters
  }
  return result;
}

uint64_t hash_parameters(const plan::ParameterLayout& layout, const float* parameters) {
  uint64_t sum = 0, index = 0;
  for (const plan::ParameterSlot& slot : layout.slots) {
    for (int64_t i = 0; i < slot.elements; ++i)
      sum += mix_element(index + static_cast<uint64_t>(i),
                         std::bit_cast<uint32_t>(parameters[slot.offset + i]));
    index += static_cast<uint64_t>(slot.elements);
  }
  return sum;
}

std::string first_not_finite(const plan::ParameterLayout& layout, const float* parameters) {
  for (const plan::ParameterSlot& slot : layout.slots) {
    // 0 times infinity or NaN is NaN, so the sum is NaN if any parameter is not finite.
    float sum = 0;
    for (int64_t i = 0; i < slot.elements; ++i) sum += 0 * parameters[slot.offset + i];
    if (sum != 0 || std::isnan(sum)) return slot.name;
  }
  return "";
}

}  // namespace lockstep::train
