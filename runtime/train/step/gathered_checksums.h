#pragma once
// Checks that the parameters that a rank has gathered equal those of their owners, by checksums of
// their bits (runtime/base/bit_checksum.h) for each owner and tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/train/run_context.h"
#include "runtime/train/step/state_checksums.h"

namespace lockstep::train {

class GatheredChecksums {
 public:
  // All borrowed. If the ranks of a node share their parameters, each rank checks those of one rank
  // of every other node.
  GatheredChecksums(const RunContext& context,
                    const RunMemory& memory,
                    const StateChecksums& state);

  // Queues the checksums of a gathered bucket, which begins at `gathered`. May be called several
  // times for a bucket that is gathered several times.
  void add(int bucket, const std::byte* gathered);
  // The same for all buckets, if they are gathered in place.
  void add_all();

  struct Damage {
    int owner = 0;
    size_t slot = 0;  // of the tensor
  };
  // The first damage since the last call. Waits for queued work. Collective: all ranks call it
  // together.
  std::optional<Damage> compare();

  // Milliseconds that this rank spent in add() since the last call.
  double take_ms();

 private:
  struct Source {
    int rank = 0;
    std::vector<std::vector<collectives::Range>> pieces{};  // by bucket
    std::vector<size_t> first{};  // index of a bucket's first piece among all pieces of the rank
    std::span<uint32_t> checksums{};
  };
  std::span<const uint32_t> own_checksums();

  const RunContext& context_;
  const RunMemory& memory_;
  const StateChecksums& state_;
  size_t max_pieces_ = 0;  // max number of pieces that a rank owns
  std::vector<Source> sources_;
  std::vector<uint32_t> times_;  // how often each bucket was added
  std::span<uint32_t> stored_;   // of this rank's own parameters, if the ops read 16 bits
  std::vector<uint32_t> owners_;
  double ms_ = 0;
};

}  // namespace lockstep::train
