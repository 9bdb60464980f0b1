#pragma once
// The order of samples in an epoch.

#include <array>
#include <cstdint>

namespace lockstep::data {

// A permutation of [0, samples). It is a pure function of (seed, epoch), so every rank can look up
// any position without tables, communication or history. Without shuffling it is the identity.
class Sampler {
 public:
  // 1 <= samples < 2^62, 0 <= epoch < 2^32.
  Sampler(int64_t samples, uint64_t seed, int64_t epoch, bool shuffle);

  // Sample index at `position`, in [0, samples). Constant memory, expected constant time.
  int64_t operator[](int64_t position) const;

 private:
  static constexpr int kRounds = 8;

  uint64_t permute(uint64_t value) const;

  int64_t samples_;
  bool shuffle_;
  int low_bits_ = 0;
  int high_bits_ = 0;
  std::array<uint32_t, kRounds> keys_{};
};

}  // namespace lockstep::data
