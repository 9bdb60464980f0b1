#include "runtime/train/step/state_sums.h"

#include <algorithm>

#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"

namespace lockstep {
namespace {

constexpr StateArray kKept[] = {
    StateArray::kWeight, StateArray::kFirstMoment, StateArray::kSecondMoment, StateArray::kAverage};

}  // namespace

StateSums::StateSums(Backend& backend, std::vector<StatePiece> pieces)
    : backend_(backend), by_updates_(!backend.ops().separate_memory), pieces_(std::move(pieces)) {
  for (const StateArray array : kKept) {
    for (const StatePiece& piece : pieces_)  // both halves are odd
      factors_[static_cast<size_t>(array)].push_back(
          mix_element(piece.slot, static_cast<uint32_t>(array)) | 0x100000001u);
  }
}

void StateSums::watch(std::span<OptimizerSlice> slices,
                      std::span<const size_t> pieces,
                      const Roles& roles) {
  LOCKSTEP_CHECK(slices.size() == pieces.size());
  const std::span<SliceSums> sums = backend_.host_array<SliceSums>(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    if (by_updates_) slices[i].sums = &sums[i];
    WatchedSlice& watched = slices_.emplace_back(WatchedSlice{slices[i], pieces[i], {}});
    const auto add = [&](const void* data,
                         ArraySums SliceSums::*member,
                         StateArray array,
                         DType dtype = DType::kF32) {
      if (data == nullptr) return;
      watched.arrays.push_back({data, dtype, member, array});
      sums_[static_cast<size_t>(array)].resize(pieces_.size());
    };
    if (roles.sums_gradients) add(slices[i].gradients, &SliceSums::gradients, roles.gradients);
    add(slices[i].parameters, &SliceSums::parameters, roles.parameters);
    const DType moments = slices[i].moment_dtype;
    add(slices[i].first_moment, &SliceSums::first_moment, StateArray::kFirstMoment, moments);
    add(slices[i].second_moment, &SliceSums::second_moment, StateArray::kSecondMoment, moments);
  }
  size_t arrays = 0;
  for (const WatchedSlice& slice : slices_) arrays += slice.arrays.size();
  memory_sums_ = backend_.host_array<uint32_t>(arrays);
}

// One sum for each array of each slice, in their order; gradients are passed over.
void StateSums::sum_memory(std::span<uint32_t> sums) {
  std::ranges::fill(sums, 0u);
  size_t number = 0;
  for (const WatchedSlice& slice : slices_) {
    for (const Watched& watched : slice.arrays) {
      if (watched.array != StateArray::kGradient)
        backend_.add_bits(static_cast<const std::byte*>(watched.data),
                          watched.dtype,
                          slice.slice.elements,
                          &sums[number]);
      ++number;
    }
  }
  backend_.synchronize();
}

void StateSums::begin() {
  updated_ = false;
  current_ = true;
  sum_memory(memory_sums_);
  size_t number = 0;
  for (const WatchedSlice& slice : slices_) {
    for (const Watched& watched : slice.arrays)
      sums_[static_cast<size_t>(watched.array)][slice.piece] = memory_sums_[number++];
  }
}

void StateSums::update_follows(std::span<const uint32_t> gradients) {
  current_ = by_updates_;
  if (!by_updates_) return;
  LOCKSTEP_CHECK(!updated_ && (gradients.empty() || gradients.size() == pieces_.size()));
  updated_ = true;
  gradients_known_ = !gradients.empty();
  std::ranges::copy(gradients, sums_[static_cast<size_t>(StateArray::kGradient)].begin());
}

// Holds sums against what they should be, and takes what they are now; sum_of() gives both.
template <typename F>
std::optional<StateSums::Damage> StateSums::compare(F sum_of) {
  std::optional<Damage> first;
  size_t number = 0;
  for (const WatchedSlice& slice : slices_) {
    for (const Watched& watched : slice.arrays) {
      const ArraySums found = sum_of(slice, watched, number++);
      uint32_t& sum = sums_[static_cast<size_t>(watched.array)][slice.piece];
      const bool known = watched.array != StateArray::kGradient || gradients_known_;
      if (known && found.read != sum && !first) first = Damage{watched.array, slice.piece};
      sum = found.written;
    }
  }
  return first;
}

std::optional<StateSums::Damage> StateSums::examine() {
  if (!updated_) return std::nullopt;
  updated_ = false;
  return compare([](const WatchedSlice& slice, const Watched& watched, size_t) {
    return slice.slice.sums->*watched.sums;
  });
}

std::optional<StateSums::Damage> StateSums::examine_memory() {
  if (!current_) return std::nullopt;
  backend_.synchronize();
  if (const std::optional<Damage> damage = examine()) return damage;
  sum_memory(memory_sums_);
  return compare([&](const WatchedSlice& slice, const Watched& watched, size_t number) {
    const uint32_t sum = watched.array == StateArray::kGradient ? of(watched.array)[slice.piece]
                                                                : memory_sums_[number];
    return ArraySums{sum, sum};
  });
}

uint64_t StateSums::digest() const {
  uint32_t low = 0, high = 0;
  for (const StateArray array : kKept) {
    if (!has(array)) continue;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const uint64_t factors = factors_[static_cast<size_t>(array)][i];
      low += of(array)[i] * static_cast<uint32_t>(factors);
      high += of(array)[i] * static_cast<uint32_t>(factors >> 32);
    }
  }
  return uint64_t{high} << 32 | low;
}

}  // namespace lockstep
