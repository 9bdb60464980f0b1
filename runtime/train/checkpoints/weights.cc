#include "runtime/train/checkpoints/weights.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "collectives/gather/gather_parts.h"
#include "runtime/base/content_hash.h"
#include "runtime/base/half.h"
#include "runtime/base/threads.h"

namespace lockstep {
namespace {

// `from` rounded to the type that the ops read, in the memory of `to`.
void round_all(std::span<const float> from, DType dtype, std::byte* to) {
  const auto round = [&](auto* out) {
    using T = std::remove_pointer_t<decltype(out)>;
    parallel_for(
        static_cast<int64_t>(from.size()), int64_t{65536}, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) out[i] = round_to<T>(from[static_cast<size_t>(i)]);
        });
  };
  if (dtype == DType::kBF16) {
    round(reinterpret_cast<BFloat16*>(to));
  } else {
    round(reinterpret_cast<Float16*>(to));
  }
}

// And back.
void widen_all(std::span<const std::byte> from, DType dtype, float* to) {
  const auto widen = [&]<typename T>(const T* in) {
    parallel_for(static_cast<int64_t>(from.size() / sizeof(T)),
                 int64_t{65536},
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) to[i] = to_float(in[i]);
                 });
  };
  if (dtype == DType::kBF16) {
    widen(reinterpret_cast<const BFloat16*>(from.data()));
  } else {
    widen(reinterpret_cast<const Float16*>(from.data()));
  }
}

// Calls f(element of the whole, element where they lie one after the other, elements) for each.
template <typename F>
void each_range(const std::vector<Range>& ranges, F f) {
  int64_t local = 0;
  for (const Range& range : ranges) {
    f(range.begin, local, range.size());
    local += range.size();
  }
}

std::byte* bytes(float* x) { return reinterpret_cast<std::byte*>(x); }

// This rank's parts of the fp32 weights, one after the other; null where it has all.
float* fp32_owned(const Plan& plan, const RunMemory& memory) {
  const bool packed = plan.shards_parameters && plan.compute == DType::kF32;
  return packed ? reinterpret_cast<float*>(memory.parameters) : memory.masters;
}

}  // namespace

HostWeights::HostWeights(const RunParts& parts, const RunMemory& memory, std::span<float> place)
    : parts_(parts), memory_(memory) {
  const Plan& plan = parts.plan;
  if (plan.compute == DType::kF32 && !plan.shards_parameters) {
    parameters_.emplace(
        parts.backend, reinterpret_cast<float*>(memory.parameters), plan.layout.elements);
    return;
  }
  whole_ = place;
  if (whole_.empty()) {
    own_.resize(static_cast<size_t>(plan.layout.elements));
    whole_ = own_;
  }
  float* const owned = fp32_owned(parts.plan, memory);
  if (owned == nullptr) return;
  int64_t elements = 0;
  for (const Range& range : stored()) elements += range.size();
  masters_.emplace(parts.backend, owned, elements);
}

std::vector<Range> HostWeights::stored() const {
  return sharded() && parts_.plan.compute == DType::kF32 ? parts_.owned_parameters()
                                                         : parts_.updated();
}

float* HostWeights::read() {
  if (parameters_) return parameters_->read();
  const float* masters = masters_->read();
  each_range(stored(), [&](int64_t begin, int64_t local, int64_t n) {
    std::copy_n(masters + local, n, whole_.data() + begin);
  });
  read_frozen();
  const auto ranks = static_cast<size_t>(parts_.communicator.size());
  const Plan& plan = parts_.plan;
  for (const Range& bucket : sharded() ? plan.all_buckets() : plan.buckets)
    gather_parts(parts_.communicator,
                 plan.topology,
                 bytes(whole_.data() + bucket.begin),
                 static_cast<size_t>(bucket.size()) / ranks * sizeof(float));
  return whole_.data();
}

// From what the ops read, of 16 bits: all of it, or where it is sharded this rank's part.
void HostWeights::read_frozen() {
  const Plan& plan = parts_.plan;
  const DType compute = plan.compute;
  if (compute == DType::kF32 || plan.frozen_buckets.empty()) return;
  const std::vector<Range> ranges =
      sharded() ? parts_.owned_of(plan.frozen_buckets)
                : std::vector<Range>{{plan.layout.trained(), plan.layout.elements}};
  const int64_t first =
      sharded() ? plan.layout.trained() / parts_.communicator.size() : plan.layout.trained();
  each_range(ranges, [&](int64_t begin, int64_t local, int64_t n) {
    std::vector<std::byte> values(static_cast<size_t>(n) * size_of(compute));
    parts_.backend.copy(memory_.parameters + static_cast<size_t>(first + local) * size_of(compute),
                        values.data(),
                        values.size());
    parts_.backend.synchronize();
    widen_all(values, compute, whole_.data() + begin);
  });
}

void HostWeights::write() {
  if (parameters_) return parameters_->write();
  if (masters_) {
    each_range(stored(), [&](int64_t begin, int64_t local, int64_t n) {
      std::copy_n(whole_.data() + begin, n, masters_->data() + local);
    });
    masters_->write();
  }
  const DType compute = parts_.plan.compute;
  if (compute == DType::kF32) return;
  const size_t size = size_of(compute);
  std::vector<std::byte> rounded(whole_.size() * size);
  round_all(whole_, compute, rounded.data());
  const auto copy = [&](int64_t from, int64_t to, int64_t n) {
    parts_.backend.copy(rounded.data() + static_cast<size_t>(from) * size,
                        memory_.parameters + static_cast<size_t>(to) * size,
                        static_cast<size_t>(n) * size);
  };
  if (sharded()) {
    each_range(parts_.owned_parameters(), copy);
  } else {
    copy(0, 0, static_cast<int64_t>(whole_.size()));
  }
  parts_.backend.synchronize();
}

WeightsHash::WeightsHash(const RunParts& parts, const RunMemory& memory)
    : parts_(parts), memory_(memory) {
  const Plan& plan = parts.plan;
  const std::vector<Range> ranges = parts.owned_parameters();
  const bool floats = plan.compute == DType::kF32;
  uint64_t index = 0;
  for (const ParameterSlot& slot : plan.layout.slots) {
    const int64_t slot_end = slot.offset + slot.elements;
    whole_.push_back({slot.offset, slot.elements, index});
    for (size_t bucket = 0; bucket < ranges.size(); ++bucket) {
      const int64_t begin = std::max(ranges[bucket].begin, slot.offset),
                    end = std::min(ranges[bucket].end, slot_end);
      if (begin >= end) continue;
      const int64_t place = plan.place_of(parts.communicator.rank(), bucket, begin);
      const uint64_t number = index + static_cast<uint64_t>(begin - slot.offset);
      if (floats || !slot.frozen) owned_.push_back({place, end - begin, number});
      if (slot.frozen)
        frozen_.push_back({plan.shards_parameters ? place : begin, end - begin, number});
    }
    index += static_cast<uint64_t>(slot.elements);
  }
  hashes_ = parts.backend.host_array<ContentHash>(
      std::max({whole_.size(), owned_.size(), frozen_.size()}));
}

ContentHash WeightsHash::hash(const std::byte* memory,
                              DType dtype,
                              const std::vector<Piece>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i)
    parts_.backend.hash(memory + static_cast<size_t>(pieces[i].at) * size_of(dtype),
                        dtype,
                        pieces[i].elements,
                        pieces[i].index,
                        &hashes_[i]);
  parts_.backend.synchronize();
  ContentHash sum;
  for (size_t i = 0; i < pieces.size(); ++i) {
    sum.sum += hashes_[i].sum;
    sum.not_finite += hashes_[i].not_finite;
  }
  return sum;
}

WeightsHash::Result WeightsHash::take() {
  const DType compute = parts_.plan.compute;
  ContentHash replica;
  if (!parts_.plan.shards_parameters) replica = hash(memory_.parameters, compute, whole_);
  const float* const owned = fp32_owned(parts_.plan, memory_);
  if (owned == nullptr && parts_.plan.frozen_buckets.empty())
    return {replica.sum, replica.sum, 0, replica.not_finite == 0};
  struct Hashes {
    ContentHash owned, frozen;
  };
  Hashes mine = {};
  if (owned != nullptr)
    mine.owned = hash(reinterpret_cast<const std::byte*>(owned), DType::kF32, owned_);
  mine.frozen = hash(memory_.parameters, compute, frozen_);
  std::vector<Hashes> all(static_cast<size_t>(parts_.communicator.size()));
  all[static_cast<size_t>(parts_.communicator.rank())] = mine;
  parts_.communicator.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(Hashes));
  Result result{0, replica.sum, 0, true};
  for (const Hashes& of_rank : all) {
    result.weights += of_rank.owned.sum;
    result.frozen += of_rank.frozen.sum;
    result.finite =
        result.finite && of_rank.owned.not_finite == 0 && of_rank.frozen.not_finite == 0;
  }
  if (owned == nullptr) {
    result.weights = replica.sum;
    result.finite = replica.not_finite == 0;
  } else if (compute != DType::kF32) {
    result.weights += result.frozen;  // which have no floats of their own
  }
  return result;
}

uint64_t hash_parameters(const ParameterLayout& layout, const float* parameters) {
  uint64_t sum = 0, index = 0;
  for (const ParameterSlot& slot : layout.slots) {
    for (int64_t i = 0; i < slot.elements; ++i)
      sum += mix_element(index + static_cast<uint64_t>(i),
                         std::bit_cast<uint32_t>(parameters[slot.offset + i]));
    index += static_cast<uint64_t>(slot.elements);
  }
  return sum;
}

std::string first_not_finite(const ParameterLayout& layout, const float* parameters) {
  for (const ParameterSlot& slot : layout.slots) {
    // The product is NaN where one of them is not finite: 0 times it is.
    float sum = 0;
    for (int64_t i = 0; i < slot.elements; ++i) sum += 0 * parameters[slot.offset + i];
    if (sum != 0 || std::isnan(sum)) return slot.name;
  }
  return "";
}

}  // namespace lockstep
