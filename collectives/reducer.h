#pragma once
// From the gradients of single lanes to the summed gradient of the global batch, in one fixed order
// on any number of ranks.
//
// The lanes are the leaves of one balanced binary tree. A rank sums the subtree of its own lanes
// with a binary counter: after lane i, as many partial sums are merged as i has trailing one bits,
// so at most log2(local lanes) + 1 gradient buffers live at a time. The upper levels run across
// ranks, bucket by bucket, first within nodes and then between them (topology.h): each rank
// receives the others' sums for its part and adds them pairwise, ((0 + 1) + (2 + 3)) + ... Hence
// the same additions in the same order whatever the number of ranks and nodes. Ranks that share
// memory read the others' sums, and the gathered parameters, where they lie.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/reducer_observer.h"
#include "collectives/sharding.h"
#include "collectives/shm/node_memory.h"
#include "collectives/topology.h"

namespace lockstep {

// Arithmetic on slices, done by the backend that owns the memory. A device may only queue the work:
// it is done in the order of the calls, and what it writes can be read after synchronize().
class SliceMath {
 public:
  virtual ~SliceMath() = default;
  // out = balanced binary tree sum of `count` (a power of two) sources of n floats; out may be one
  // of the sources.
  virtual void tree_sum(const float* const* sources, int count, float* out, int64_t n) = 0;
  // out[i], in memory of allocate_host(), = sum of squares, in a fixed order, of the i-th of
  // `count` consecutive slices of n floats each.
  virtual void sums_of_squares(const float* x, int64_t n, int count, double* out) = 0;
  // Returns when everything queued so far is done.
  virtual void synchronize() = 0;
  // Memory that host and device both reach, aligned to 64 bytes, owned by the device until it is
  // destroyed.
  virtual std::byte* allocate_host(size_t bytes) = 0;
  // n values in such memory.
  template <typename T>
  std::span<T> host_array(size_t n) {
    T* values = reinterpret_cast<T*>(allocate_host(n * sizeof(T)));
    std::uninitialized_value_construct_n(values, n);
    return {values, n};
  }
};

// What a loss op reports for a lane: sum of losses, rows counted, rows predicted correctly, 0.
struct LaneStatistics {
  double values[4] = {};
};

// Sums over the global batch, equal on all ranks.
struct StepTotals {
  double loss_sum = 0;
  double valid_count = 0;
  double correct_count = 0;
  double squared_norm = 0;  // of the summed gradient, before scaling
  int64_t flags = 0;        // bitwise or of the ranks' flags
  double slowest_ms = 0;    // the most that a rank was busy,
  int slowest_rank = 0;     // which one that was,
  double fastest_ms = 0;    // and the least
};

struct ReducerOptions {
  int lanes = 1;
  bool fast_order = false;  // let the library choose the order across ranks; the topology is flat
  std::vector<Range> buckets;
  std::vector<int> gather_order;  // every bucket, in the order in which the forward pass needs them
  Topology topology;              // of all ranks
  // So many buckets hold gradients; those after them are summed alike, but are no part of the norm.
  size_t gradient_buckets = ~size_t{0};
  // All lanes of a rank run together: each has a gradient buffer of its own.
  bool lanes_together = false;
  // Where the sums over all ranks go, a flat buffer; null: into the gradients. Several ranks.
  float* sums = nullptr;
};

// Who carries what: gradients and parameters lie in the backend's memory, the few numbers that a
// step ends with in the host's.
struct ReducerCommunicators {
  Communicator& slices;
  Communicator& control;
  NodeMemory* node = nullptr;  // where the topology shares memory: all gradients are its own(),
                               // and the parameters to gather its common()
};

class Reducer {
 public:
  // `gradients`: gradient_buffers() buffers of `elements` floats each; `staging`:
  // staging_elements() floats for each of kExchangesInFlight. Both borrowed.
  Reducer(ReducerCommunicators communicators,
          SliceMath& math,
          ReducerOptions options,
          float* gradients,
          float* staging);

  // Tells it, borrowed, from now on; null: nobody.
  void observe(ReducerObserver* observer) { observer_ = observer; }

  int local_lanes() const { return local_lanes_; }
  int first_lane() const { return communicator_.rank() * local_lanes_; }

  void begin_step();
  // Where the next lane's backward pass writes its gradients.
  float* lane_gradients() { return buffer(depth_of(lane_)); }
  // The lane under way, where they run together and take turns.
  void select_lane(int local_lane) { lane_ = local_lane; }
  // Brings `bytes` of every lane to all ranks: this rank's lie in their places already.
  void gather_lanes(std::byte* all, size_t bytes);
  // The lane under way has finished every gradient of `bucket`. Called once per bucket and lane, in
  // increasing order.
  void bucket_ready(int bucket);
  void end_lane() { ++lane_; }
  // Between ops: moves the exchanges and gathers under way.
  void progress() {
    if (in_flight_count_ > 0 || gather_.done < gather_.started) communicator_.progress();
  }
  // Completes the exchange; afterwards this rank's parts of reduced() hold the sum over all lanes.
  void reduce();
  // Waits for what has been queued and sums the statistics and norms of the step over all ranks.
  // `busy_ms`: milliseconds that this rank has worked, without its waits for others, since they
  // last left here together.
  StepTotals totals(std::span<const LaneStatistics> local, int64_t flags, double busy_ms);
  // Of no more use to the reducer: an optimizer may write over its parts.
  float* reduced() { return sums_; }

  // Sums the statistics of an evaluation over all lanes; `local` is complete.
  StepTotals sum_statistics(std::span<const LaneStatistics> local) {
    return exchange_totals(local, 0, 0);
  }
  // Begins to bring every rank's parts of `parameters` to all ranks, bucket by bucket in the order
  // of need; bucket_needed() returns once the bucket, and those before it, are there.
  void start_gather(std::byte* parameters, size_t element_bytes);
  void bucket_needed(int bucket);
  void finish_gather();

  // Milliseconds that the host spent waiting for other ranks since begin_step().
  double exposed_ms() const { return exposed_ms_; }

 private:
  StepTotals exchange_totals(std::span<const LaneStatistics> local, int64_t flags, double busy_ms);
  // What a rank waits for: an operation of the communicator or, in shared memory, an event.
  struct Arrival {
    int handle = -1;  // none: the event
    NodeMemory::Event event = NodeMemory::Event::kGradients;
    uint32_t count = 0;
  };
  // One bucket's way through the levels of the topology.
  struct Exchange {
    int bucket = -1;
    Range range;  // of which this level sums one part
    float* received = nullptr;
    size_t level = 0;  // under way
    Arrival arrival = {};
    double start_ms = 0;  // of the level, while somebody observes
  };
  int depth_of(int lane) const {
    return options_.lanes_together ? lane : __builtin_popcount(static_cast<unsigned>(lane));
  }
  void merge_lanes(const Range& range);
  void merge(int into, int from, const Range& range);
  float* buffer(int index) { return gradients_ + index * elements_; }
  void start_exchange(int bucket);
  void start_level(Exchange& exchange);
  void sum_level(Exchange& exchange);
  void complete_oldest();
  void measure_norm(int bucket);
  bool in_memory(size_t level) const { return node_ != nullptr && level == 0; }
  Arrival signal(NodeMemory::Event event) { return {-1, event, node_->signal(event)}; }
  using Wait = ReducerObserver::Wait;
  double timed_wait(const Arrival& arrival, Wait what, int bucket);
  double count_wait(Wait what, int bucket, double start_ms);

  // One rank's part of the small exchange that ends a step: flags, how long it was busy, statistics
  // of its lanes, norms of its slices.
  std::vector<double> exchange_;

  Communicator& communicator_;  // of slices
  Communicator& control_;
  NodeMemory* node_;
  SliceMath& math_;
  ReducerOptions options_;
  float *gradients_, *sums_;
  float* staging_;
  int64_t elements_;
  int64_t staging_elements_;  // of one exchange
  int local_lanes_;
  int part_;                       // of each bucket, this rank's
  std::vector<RankGroup> groups_;  // by level
  std::vector<GatherStep> steps_;  // of the gather
  int lane_ = 0;
  // The gather under way.
  struct Gather {
    std::byte* parameters = nullptr;
    size_t element_bytes = 0;
    size_t started = 0, done = 0;  // buckets, in the order of need
    struct Pending {
      size_t step = 0;  // under way
      Arrival arrival = {};
      double start_ms = 0;  // of the first step, while somebody observes
    };
    std::vector<Pending> pending;  // a ring of as many as may be under way
  };
  void start_step(size_t place, size_t step);
  void finish_steps(size_t place, size_t steps);
  void advance_gather();
  Gather gather_;
  std::vector<size_t> gather_place_;  // of each bucket in the order of need

  static constexpr size_t kInFlight = kExchangesInFlight;
  Exchange in_flight_[kInFlight];  // a queue: oldest first
  size_t in_flight_count_ = 0;
  size_t next_slot_ = 0;     // of staging_
  std::span<double> norms_;  // (buckets, slices of mine), in memory of allocate_host()
  double exposed_ms_ = 0;
  ReducerObserver* observer_ = nullptr;
};

}  // namespace lockstep
