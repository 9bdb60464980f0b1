#pragma once
// Whether the parameters that a rank has gathered are what their owners have: sums of their bits
// (runtime/base/bit_sum.h), owner by owner and tensor by tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/train/run_parts.h"
#include "runtime/train/step/state_sums.h"

namespace lockstep {

class GatheredSums {
 public:
  // All borrowed. Of parameters that the ranks of a node have together, each rank looks at those of
  // one rank of every other node.
  GatheredSums(const RunParts& parts, const RunMemory& memory, const StateSums& state);

  // Queues the sums of a gathered bucket, which begins at `gathered`. May be called several times
  // for a bucket that is gathered several times.
  void add(int bucket, const std::byte* gathered);
  // The same for all of them, where they are gathered in place.
  void add_all();

  struct Damage {
    int owner = 0;
    size_t slot = 0;  // of the tensor
  };
  // The first that differs, since the last call. Waits for what is queued. All ranks together.
  std::optional<Damage> compare();

  // Milliseconds that add() took this rank since the last call.
  double take_ms();

 private:
  struct Source {
    int rank = 0;
    std::vector<std::vector<Range>> pieces{};  // by bucket
    std::vector<size_t> first{};               // of a bucket, among all of the rank
    std::span<uint32_t> sums{};
  };
  std::span<const uint32_t> own_sums();

  const RunParts& parts_;
  const RunMemory& memory_;
  const StateSums& state_;
  size_t most_pieces_ = 0;  // that a rank can own
  std::vector<Source> sources_;
  std::vector<uint32_t> times_;  // that each bucket was added
  std::span<uint32_t> stored_;   // own sums, where the ops read 16 bits
  std::vector<uint32_t> owners_;
  double ms_ = 0;
};

}  // namespace lockstep
