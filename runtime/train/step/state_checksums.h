#pragma once
// Checksums of what must not change between two updates: weights, moments, the average of the
// weights.
//
// While an update has elements in registers, it checksums the bits of every element that it reads
// and of every one that it writes (runtime/base/bit_checksum.h). What it reads must be what the
// previous update wrote; if the checksums differ, memory has changed by itself. The gradients that
// it reads must be those that the reduction has produced. So every element is checked at every
// step, by the rank that owns it, at almost no cost.
//
// On a device with memory of its own, updates compute no checksums. There, memory is checksummed at
// the beginning of some steps and again before their update (StepChecks); gradients are not
// checked.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/layout/sharding.h"
#include "runtime/exec/backend.h"

namespace lockstep::train {

// The arrays of a training state. The gradient belongs to one step only.
// The digest depends on the numbers.
enum class StateArray : size_t {
  kGradient,
  kWeight,
  kFirstMoment,
  kSecondMoment,
  kAverage,
  kThirdMoment
};
inline constexpr size_t kStateArrays = 6;

// The part of one tensor within one owned range.
struct StatePiece {
  size_t slot = 0;           // of the tensor, in ParameterLayout::slots
  collectives::Range range;  // of the flat buffer
  int64_t local = 0;         // index of range.begin among the owned elements
};

class StateChecksums {
 public:
  StateChecksums(exec::Backend& backend, std::vector<StatePiece> pieces);

  // Which of the state's arrays an update gets as gradients and as parameters.
  struct Roles {
    StateArray gradients = StateArray::kGradient, parameters = StateArray::kWeight;
    bool checks_gradients = true;  // false: something else writes them between two updates
  };
  // Watches these slices: whenever their update runs, it computes their checksums. Slice i belongs
  // to piece pieces[i]. Updates run in the order of the calls, each once per step.
  void watch(std::span<exec::OptimizerSlice> slices,
             std::span<const size_t> pieces,
             const Roles& roles);

  // Whether updates compute checksums of what they read and write.
  bool by_updates() const { return by_updates_; }
  // Takes the checksums of what is in memory now, which is assumed to be right.
  void begin();
  // Call before an update. `gradients`: the checksums of its gradients, by piece, or none.
  void update_follows(std::span<const uint32_t> gradients);

  struct Damage {
    StateArray array = StateArray::kWeight;
    size_t piece = 0;
  };
  // Call after the last update is done and before the next one. Returns the first array that
  // changed since it was written. A second call returns nothing.
  std::optional<Damage> examine();
  // Returns the first array that differs from its checksums in memory now. Waits for the device. If
  // updates compute no checksums, the contents of memory are unknown between an update and the next
  // begin(), and nothing is found.
  std::optional<Damage> examine_memory();

  // A digest of the weights, the moments and the average. It is a linear function of the checksums:
  // the digests of ranks that own different parts add up to the digest of the whole, half by half
  // (add_halves()).
  uint64_t digest() const;

  const std::vector<StatePiece>& pieces() const { return pieces_; }
  // By piece; for kGradient, those that the last update has read.
  std::span<const uint32_t> of(StateArray array) const { return at(array); }
  bool has(StateArray array) const { return !at(array).empty(); }

 private:
  struct Watched {
    const void* data;
    DType dtype;
    int64_t elements;
    const exec::ArrayChecksums* checksums;  // as the update computes them
    StateArray array;
  };
  struct WatchedSlice {
    exec::OptimizerSlice slice;
    size_t piece = 0;
    std::vector<Watched> arrays;
  };
  const std::vector<uint32_t>& at(StateArray array) const {
    return checksums_[static_cast<size_t>(array)];
  }
  template <typename F>
  std::optional<Damage> compare(F checksums_of);
  void checksum_memory(std::span<uint32_t> checksums);

  exec::Backend& backend_;
  bool by_updates_;
  std::vector<StatePiece> pieces_;
  std::vector<WatchedSlice> slices_;
  std::array<std::vector<uint32_t>, kStateArrays>
      checksums_;  // by piece; empty: there is no such array
  // by piece: two factors, for the digest
  std::array<std::vector<uint64_t>, kStateArrays> factors_;
  bool updated_ = false;          // by an update that examine() has not seen
  bool gradients_known_ = false;  // for that update
  bool current_ = false;          // the checksums describe what memory should hold now
  std::span<uint32_t> memory_checksums_;
};

}  // namespace lockstep::train
