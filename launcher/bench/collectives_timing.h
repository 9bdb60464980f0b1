#pragma once
// Times the operations by which ranks exchange gradients and parameters, in the way a training step
// uses them.

#include <cstdint>
#include <vector>

#include "collectives/exchange/slice_math.h"
#include "collectives/layout/topology.h"
#include "runtime/exec/host_copy.h"

namespace lockstep::launcher {

enum class Collective { kReduceScatter, kAllGather, kAllReduce, kBroadcast };
// "reduce_scatter", ...
const char* name_of(Collective collective);

// One operation on a vector of floats, of which every rank has a full copy. If ranks share memory,
// an all-gather writes to one vector that all ranks of a node share, and an all-reduce on one node
// leaves the sum in every rank's own vector.
struct CollectiveRequest {
  Collective collective = Collective::kAllReduce;
  bool fast_order = false;  // the library chooses the order of the sums, instead of the fixed tree
  int64_t bytes = 0;        // of the vector; rounded up to what the ranks can share evenly
  // The type to which terms and sums are rounded and in which they travel, for sums in TREE order
  // among ranks that share no memory. `bytes` is the vector's size in this type.
  DType wire = DType::kF32;
};

// Times in microseconds are those of the slowest rank in each repetition.
struct CollectiveTiming {
  CollectiveRequest request;
  int64_t bytes = 0;  // of the vector, as it travels
  double p50_us = 0, p99_us = 0;
  double algbw = 0;  // GB/s: bytes / p50
  double busbw = 0;  // GB/s: algbw times the share of the bytes that each rank must send
};

// The number of floats in the request's vector.
int64_t elements_of(const CollectiveRequest& request, int ranks);

// The device memory that a CollectiveBench needs for vectors of up to `elements` floats.
size_t collective_bench_bytes(int64_t elements, const collectives::Topology& topology);

// Times collective operations one after the other, all in the same buffers.
class CollectiveBench {
 public:
  // Allocates vectors of up to `max_elements` floats from the backend's reserved memory or, if the
  // topology shares memory, from the node's.
  CollectiveBench(const collectives::RankCommunicators& communicators,
                  exec::Backend& backend,
                  const collectives::Topology& topology,
                  int64_t max_elements);
  // Runs the operation once on numbers whose sum is exact in any order and checks every element of
  // the result on this rank; then times it `repeats` times. Collective. Throws NumericError if an
  // element is wrong.
  CollectiveTiming time(const CollectiveRequest& request, int repeats);

 private:
  // The buffers, as copied to the host.
  struct Buffers {
    exec::HostCopy& vector;
    exec::HostCopy& sums;        // of the gather; `vector` if there is no separate buffer
    exec::HostCopy& input;       // what this rank writes before the operation runs,
    collectives::Range written;  // and which part of it
  };
  template <typename Run>
  void verify(const CollectiveRequest& request,
              int64_t elements,
              const collectives::Range& mine,
              const Buffers& buffers,
              const Run& run);
  template <typename Run, typename Refill>
  std::vector<double> repeat(const Run& run, const Refill& refill, int repeats);

  collectives::RankCommunicators communicators_;
  exec::Backend& backend_;
  collectives::Topology topology_;
  float *vector_, *sums_;
  float* staging_;
  int64_t max_elements_;
};

}  // namespace lockstep::launcher
