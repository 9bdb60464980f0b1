#pragma once
// Checksums of what lies still between two updates: weights, moments, the average of the weights.
//
// An update sums the bits of every element that it reads and of every one that it writes, while they
// are in registers (runtime/base/bit_sum.h). What it reads must be what the update before it wrote:
// where the sums differ, memory has changed by itself. The gradients that it reads must be those
// that the reduction has left. So every element is checked at every step by the rank that owns it.
//
// On a device with memory of its own updates sum nothing: there memory is summed at the beginning
// of some steps and before their update (StepChecks), and no gradients are.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/sharding.h"
#include "runtime/exec/backend.h"

namespace lockstep {

// The arrays of a state; the gradient is of the step alone.
enum class StateArray : size_t { kGradient, kWeight, kFirstMoment, kSecondMoment, kAverage };
inline constexpr size_t kStateArrays = 5;

// The part of one tensor within one owned range.
struct StatePiece {
  size_t slot = 0;    // of the tensor, in ParameterLayout::slots
  Range range;        // of the flat buffer
  int64_t local = 0;  // of range.begin among the owned elements
};

class StateSums {
 public:
  StateSums(Backend& backend, std::vector<StatePiece> pieces);

  // What an update's slice reads and writes: which array each of its four is.
  struct Roles {
    StateArray gradients = StateArray::kGradient, parameters = StateArray::kWeight;
    bool sums_gradients = true;  // false: others write them between two updates
  };
  // Has these slices summed whenever their update runs, slice i being of piece pieces[i]. Updates
  // run in the order of the calls, each once a step.
  void watch(std::span<OptimizerSlice> slices, std::span<const size_t> pieces, const Roles& roles);

  // Whether updates sum what they read and write.
  bool by_updates() const { return by_updates_; }
  // Sums what lies in memory now, which is held to be right.
  void begin();
  // An update follows; `gradients`, by piece, are the sums of its gradients, or none.
  void update_follows(std::span<const uint32_t> gradients);

  struct Damage {
    StateArray array = StateArray::kWeight;
    size_t piece = 0;
  };
  // After the last update is done, and before another: the first array that it has found other
  // than it had been left. Called again: nothing.
  std::optional<Damage> examine();
  // The same for what lies in memory now. Waits for the device. Where updates do not sum, nothing is
  // known of memory between an update and the next begin().
  std::optional<Damage> examine_memory();

  // Of the weights, the moments and the average: a linear function of the sums, so that those of
  // ranks that own different parts add up to that of the whole, half by half (add_halves()).
  uint64_t digest() const;

  const std::vector<StatePiece>& pieces() const { return pieces_; }
  // By piece; of kGradient those that the last update has read.
  std::span<const uint32_t> of(StateArray array) const { return at(array); }
  bool has(StateArray array) const { return !at(array).empty(); }

 private:
  struct Watched {
    const void* data;
    DType dtype;
    ArraySums SliceSums::*sums;
    StateArray array;
  };
  struct WatchedSlice {
    OptimizerSlice slice;
    size_t piece = 0;
    std::vector<Watched> arrays;
  };
  const std::vector<uint32_t>& at(StateArray array) const {
    return sums_[static_cast<size_t>(array)];
  }
  template <typename F>
  std::optional<Damage> compare(F sum_of);
  void sum_memory(std::span<uint32_t> sums);

  Backend& backend_;
  bool by_updates_;
  std::vector<StatePiece> pieces_;
  std::vector<WatchedSlice> slices_;
  std::array<std::vector<uint32_t>, kStateArrays> sums_;  // by piece; empty: there is no such array
  std::array<std::vector<uint64_t>, kStateArrays> factors_;  // by piece: two, of the digest
  bool updated_ = false;          // by an update that has not been examined
  bool gradients_known_ = false;  // of that update
  bool current_ = false;          // the sums are of what memory should be now
  std::span<uint32_t> memory_sums_;
};

}  // namespace lockstep
