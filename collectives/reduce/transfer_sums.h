#pragma once
// Whether gradients arrive as they were sent. Who offers its sums of a bucket to the others of a
// group adds up their bits (runtime/base/bit_sum.h), and so does who takes them, from a message or
// from shared memory; at the end of the step both sums are held against each other, tensor by
// tensor.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/sharding.h"
#include "collectives/slice_math.h"
#include "collectives/topology.h"
#include "runtime/base/dtype.h"

namespace lockstep {

class TransferSums {
 public:
  // `tensor_begins`: where the tensors of the flat buffer begin, increasing.
  TransferSums(Communicator& control,
               SliceMath& math,
               const Topology& topology,
               const std::vector<Range>& buckets,
               const std::vector<int64_t>& tensor_begins);

  // Queues the sums of what this rank offers at a level of the topology, n elements of the bucket
  // from `sent` on; what it keeps for itself is passed over.
  void offer(int bucket, size_t level, const std::byte* sent, DType dtype);
  // And of its part of a bucket that it takes from the others, by index in the group.
  void take(int bucket, size_t level, const void* const* arrays, DType dtype);

  struct Damage {
    int from = 0;      // the rank that offered it
    int64_t flat = 0;  // where its piece begins in the flat buffer
  };
  // The first piece that this rank took otherwise than it was offered, since the last call. Waits
  // for what is queued. All ranks together.
  std::optional<Damage> compare();

  // Milliseconds that offer() and take() took this rank since the last call.
  double take_ms();

 private:
  struct Level {
    RankGroup group;
    int me = 0;
    std::vector<std::vector<std::vector<Range>>> pieces{};  // by bucket and index in the group
    std::vector<size_t> first{};                            // of a bucket, in a slot
    std::span<uint32_t> offered{}, taken{};                 // a slot for each index
    std::vector<uint32_t> told{};                           // by the others, as taken
  };
  void add(const std::byte* from, DType dtype, const std::vector<Range>& pieces, uint32_t* sums);

  Communicator& control_;
  SliceMath& math_;
  size_t slot_ = 0;  // sums for each index
  std::vector<Level> levels_;
  double ms_ = 0;
};

}  // namespace lockstep
