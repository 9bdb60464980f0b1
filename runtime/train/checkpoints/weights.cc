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
  const int64_t parts_of_all = plan.shards_optimizer ? parts.communicator.size() : 1;
  if (owned != nullptr) masters_.emplace(parts.backend, owned, plan.layout.elements / parts_of_all);
}

template <typename F>
void HostWeights::each_updated(F f) const {
  int64_t local = 0;
  for (const Range& range : parts_.updated()) {
    f(range.begin, local, range.size());
    local += range.size();
  }
}

float* HostWeights::read() {
  if (parameters_) return parameters_->read();
  const float* masters = masters_->read();
  each_updated([&](int64_t begin, int64_t local, int64_t n) {
    std::copy_n(masters + local, n, whole_.data() + begin);
  });
  const auto ranks = static_cast<size_t>(parts_.communicator.size());
  for (const Range& bucket : parts_.plan.buckets)
    gather_parts(parts_.communicator,
                 parts_.plan.topology,
                 bytes(whole_.data() + bucket.begin),
                 static_cast<size_t>(bucket.size()) / ranks * sizeof(float));
  return whole_.data();
}

void HostWeights::write() {
  if (parameters_) return parameters_->write();
  if (masters_) {
    each_updated([&](int64_t begin, int64_t local, int64_t n) {
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
  if (parts_.plan.shards_parameters) {
    each_updated(copy);
  } else {
    copy(0, 0, static_cast<int64_t>(whole_.size()));
  }
  parts_.backend.synchronize();
}

WeightsHash::WeightsHash(const RunParts& parts, const RunMemory& memory)
    : parts_(parts), memory_(memory) {
  const Plan& plan = parts.plan;
  const std::vector<Range> ranges = parts.owned();
  uint64_t index = 0;
  for (const ParameterSlot& slot : plan.layout.slots) {
    const int64_t slot_end = slot.offset + slot.elements;
    whole_.push_back({slot.offset, slot.elements, index});
    for (size_t bucket = 0; bucket < ranges.size(); ++bucket) {
      const int64_t begin = std::max(ranges[bucket].begin, slot.offset),
                    end = std::min(ranges[bucket].end, slot_end);
      if (begin < end)
        owned_.push_back({plan.place_of(parts.communicator.rank(), bucket, begin),
                          end - begin,
                          index + static_cast<uint64_t>(begin - slot.offset)});
    }
    index += static_cast<uint64_t>(slot.elements);
  }
  hashes_ = parts.backend.host_array<ContentHash>(std::max(whole_.size(), owned_.size()));
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
  if (owned == nullptr) return {replica.sum, replica.sum, replica.not_finite == 0};
  const ContentHash mine = hash(reinterpret_cast<const std::byte*>(owned), DType::kF32, owned_);
  std::vector<ContentHash> all(static_cast<size_t>(parts_.communicator.size()));
  all[static_cast<size_t>(parts_.communicator.rank())] = mine;
  parts_.communicator.all_gather(reinterpret_cast<std::byte*>(all.data()), sizeof(ContentHash));
  Result result{0, replica.sum, true};
  for (const ContentHash& of_rank : all) {
    result.weights += of_rank.sum;
    result.finite = result.finite && of_rank.not_finite == 0;
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
