#include "runtime/train/step/state_checksums.h"

#include <algorithm>

#include "runtime/base/content_hash.h"
#include "runtime/base/error.h"
#include "runtime/base/moment_block.h"

namespace lockstep::train {
namespace {

constexpr std::array<StateArray, exec::kMaxMoments> kMoments = {
    StateArray::kFirstMoment, StateArray::kSecondMoment, StateArray::kThirdMoment};
constexpr StateArray kKept[] = {
    StateArray::kWeight, kMoments[0], kMoments[1], kMoments[2], StateArray::kAverage};

}  // namespace

StateChecksums::StateChecksums(exec::Backend& backend, std::vector<StatePiece> pieces)
    : backend_(backend), by_updates_(!backend.ops().separate_memory), pieces_(std::move(pieces)) {
  for (const StateArray array : kKept) {
    for (const StatePiece& piece : pieces_)  // both halves are odd
      factors_[static_cast<size_t>(array)].push_back(
          mix_element(piece.slot, static_cast<uint32_t>(array)) | 0x100000001u);
  }
}

void StateChecksums::watch(std::span<exec::OptimizerSlice> slices,
                           std::span<const size_t> pieces,
                           const Roles& roles) {
  LOCKSTEP_CHECK(slices.size() == pieces.size());
  const std::span<exec::SliceChecksums> checksums =
      backend_.host_array<exec::SliceChecksums>(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    if (by_updates_) slices[i].checksums = &checksums[i];
    WatchedSlice& watched = slices_.emplace_back(WatchedSlice{slices[i], pieces[i], {}});
    const auto add = [&](const void* data,
                         const exec::ArrayChecksums& of_update,
                         StateArray array,
                         DType dtype = DType::kF32) {
      if (data == nullptr) return;
      int64_t elements = slices[i].elements;
      if (dtype == DType::kU8) {  // as words
        elements = static_cast<int64_t>(moment_bytes(dtype, elements) / sizeof(uint32_t));
        dtype = DType::kF32;
      }
      watched.arrays.push_back({data, dtype, elements, &of_update, array});
      checksums_[static_cast<size_t>(array)].resize(pieces_.size());
    };
    if (roles.checks_gradients) add(slices[i].gradients, checksums[i].gradients, roles.gradients);
    add(slices[i].parameters, checksums[i].parameters, roles.parameters);
    for (size_t m = 0; m < kMoments.size(); ++m)
      add(slices[i].moments[m], checksums[i].moments[m], kMoments[m], slices[i].moment_dtype);
  }
  size_t arrays = 0;
  for (const WatchedSlice& slice : slices_) arrays += slice.arrays.size();
  memory_checksums_ = backend_.host_array<uint32_t>(arrays);
}

// One checksum for each array of each slice, in order; gradients are skipped.
void StateChecksums::checksum_memory(std::span<uint32_t> checksums) {
  std::ranges::fill(checksums, 0u);
  size_t number = 0;
  for (const WatchedSlice& slice : slices_) {
    for (const Watched& watched : slice.arrays) {
      if (watched.array != StateArray::kGradient)
        backend_.add_bits(static_cast<const std::byte*>(watched.data),
                          watched.dtype,
                          watched.elements,
                          &checksums[number]);
      ++number;
    }
  }
  backend_.synchronize();
}

void StateChecksums::begin() {
  updated_ = false;
  current_ = true;
  checksum_memory(memory_checksums_);
  size_t number = 0;
  for (const WatchedSlice& slice : slices_) {
    for (const Watched& watched : slice.arrays)
      checksums_[static_cast<size_t>(watched.array)][slice.piece] = memory_checksums_[number++];
  }
}

void StateChecksums::update_follows(std::span<const uint32_t> gradients) {
  current_ = by_updates_;
  if (!by_updates_) return;
  LOCKSTEP_CHECK(!updated_ && (gradients.empty() || gradients.size() == pieces_.size()));
  updated_ = true;
  gradients_known_ = !gradients.empty();
  std::ranges::copy(gradients, checksums_[static_cast<size_t>(StateArray::kGradient)].begin());
}

// Compares checksums with the expected ones, and stores the new ones; checksums_of() returns both.
template <typename F>
std::optional<StateChecksums::Damage> StateChecksums::compare(F checksums_of) {
  std::optional<Damage> first;
  size_t number = 0;
  for (const WatchedSlice& slice : slices_) {
    for (const Watched& watched : slice.arrays) {
      const exec::ArrayChecksums found = checksums_of(slice, watched, number++);
      uint32_t& sum = checksums_[static_cast<size_t>(watched.array)][slice.piece];
      const bool known = watched.array != StateArray::kGradient || gradients_known_;
      if (known && found.read != sum && !first) first = Damage{watched.array, slice.piece};
      sum = found.written;
    }
  }
  return first;
}

std::optional<StateChecksums::Damage> StateChecksums::examine() {
  if (!updated_) return std::nullopt;
  updated_ = false;
  return compare(
      [](const WatchedSlice&, const Watched& watched, size_t) { return *watched.checksums; });
}

std::optional<StateChecksums::Damage> StateChecksums::examine_memory() {
  if (!current_) return std::nullopt;
  backend_.synchronize();
  if (const std::optional<Damage> damage = examine()) return damage;
  checksum_memory(memory_checksums_);
  return compare([&](const WatchedSlice& slice, const Watched& watched, size_t number) {
    const uint32_t sum = watched.array == StateArray::kGradient ? of(watched.array)[slice.piece]
                                                                : memory_checksums_[number];
    return exec::ArrayChecksums{sum, sum};
  });
}

uint64_t StateChecksums::digest() const {
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

}  // namespace lockstep::train
