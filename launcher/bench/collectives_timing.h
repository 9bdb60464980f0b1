#pragma once
// Times the operations by which ranks exchange gradients and parameters, as a training step uses
// them.

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/reduce/reducer.h"
#include "runtime/exec/host_copy.h"

namespace lockstep {

enum class Collective { kReduceScatter, kAllGather, kAllReduce, kBroadcast };
// "reduce_scatter", ...
const char* name_of(Collective collective);

// One operation on a vector of floats that every rank has whole. Where ranks share memory, what is
// gathered lies in one vector that all of a node have together; an all-reduce on one node leaves
// the sum in every rank's own.
struct CollectiveRequest {
  Collective collective = Collective::kAllReduce;
  bool fast_order = false;  // of sums: as the library likes, instead of the fixed tree
  int64_t bytes = 0;        // of the vector; rounded up to what the ranks can share evenly
  // Of sums in the tree's order between ranks that share no memory: what terms and sums are rounded
  // to and travel as. The bytes are those of the vector in this type.
  DType wire = DType::kF32;
};

// Microseconds are of the slowest rank, repetition by repetition.
struct CollectiveTiming {
  CollectiveRequest request;
  int64_t bytes = 0;  // of the vector as it travels
  double p50_us = 0, p99_us = 0;
  double algbw = 0;  // GB/s: bytes / p50
  double busbw = 0;  // GB/s: algbw times the share of the bytes that must leave each rank
};

// The floats of the request's vector.
int64_t elements_of(const CollectiveRequest& request, int ranks);

// The device memory that a CollectiveBench takes for vectors of up to so many floats.
size_t collective_bench_bytes(int64_t elements);

// What all timings share.
class CollectiveBench {
 public:
  // Takes memory for vectors of up to `most_elements` floats from what the backend has reserved or,
  // where the topology shares memory, from the node's. Ranks: a power of two.
  CollectiveBench(const RankCommunicators& communicators,
                  Backend& backend,
                  const Topology& topology,
                  int64_t most_elements);
  // Runs the operation once on numbers whose sum is exact in any order and checks every element
  // that this rank then has, then `repeats` times by the clock. All ranks together. Throws
  // NumericError where an element is wrong.
  CollectiveTiming time(const CollectiveRequest& request, int repeats);

 private:
  // The host's view of them.
  struct Buffers {
    HostCopy& vector;
    HostCopy& sums;   // gathered; the vector itself where no other one is used
    HostCopy& input;  // the one that this rank writes before the operation runs,
    Range written;    // and how much of it
  };
  template <typename Run>
  void verify(const CollectiveRequest& request,
              int64_t elements,
              const Range& mine,
              const Buffers& buffers,
              const Run& run);
  template <typename Run, typename Refill>
  std::vector<double> repeat(const Run& run, const Refill& refill, int repeats);

  RankCommunicators communicators_;
  Backend& backend_;
  Topology topology_;
  float *vector_, *sums_;
  float* staging_;
  int64_t most_elements_;
};

}  // namespace lockstep
