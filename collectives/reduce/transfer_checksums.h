#pragma once
// Checks that gradients arrive as they were sent. The rank that offers its sums of a bucket to a
// group computes their bit checksums (runtime/base/bit_checksum.h), and so does each rank that
// takes them, from a message or from shared memory. At the end of the step the ranks compare both,
// tensor by tensor; the checksums of several sums are added.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/exchange/slice_math.h"
#include "collectives/layout/sharding.h"
#include "collectives/layout/topology.h"
#include "runtime/base/dtype.h"

namespace lockstep::collectives {

class TransferChecksums {
 public:
  // `tensor_begins`: increasing offsets of the tensors in the flat buffer.
  TransferChecksums(Communicator& control,
                    SliceMath& math,
                    const Topology& topology,
                    const std::vector<Range>& buckets,
                    const std::vector<int64_t>& tensor_begins);

  // Queues the checksums of the bucket's elements at `sent`, which this rank offers at a level of
  // the topology. Skips the part that it keeps for itself.
  void offer(int bucket, size_t level, const std::byte* sent, DType dtype);
  // Queues the checksums of this rank's part of a bucket, as read from the group's other ranks:
  // counts[i] of the arrays are from the rank with index i in the group.
  void take(int bucket,
            size_t level,
            std::span<const void* const> arrays,
            std::span<const int> counts,
            DType dtype);

  struct Damage {
    int from = 0;      // the rank that offered it
    int64_t flat = 0;  // offset of the damaged piece in the flat buffer
  };
  // Returns the first piece that this rank has taken since the last call and whose bits differ from
  // those offered. Waits for the queued work. Collective.
  std::optional<Damage> compare();

  // Milliseconds that this rank has spent in offer() and take() since the last call.
  double take_ms();

 private:
  struct Level {
    RankGroup group;
    int me = 0;
    std::vector<std::vector<std::vector<Range>>> pieces{};  // by bucket and index in the group
    std::vector<size_t> first{};                            // of a bucket, in a slot
    std::span<uint32_t> offered{}, taken{};                 // checksums: a slot for each index
    std::vector<uint32_t> expected{};  // computed by the others, of what this rank took
  };
  void add(const std::byte* from,
           DType dtype,
           const std::vector<Range>& pieces,
           uint32_t* checksums);

  Communicator& control_;
  SliceMath& math_;
  size_t slot_ = 0;  // checksums for each index
  std::vector<Level> levels_;
  double ms_ = 0;
};

}  // namespace lockstep::collectives
