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
// memory read the others' sums where they lie.
//
// With packed sums it is the other way about: the ranks run neighbouring lanes at a time, each
// lane's gradients are summed across the ranks at once, and a rank's counter is of its own parts
// alone. So nobody has a whole buffer of gradients: a bucket's memory serves others once it is
// summed. But a rank sends its gradients once for every lane.
//
// With a `wire` that rounds, every term of the tree is rounded wherever it is added, within a rank,
// through shared memory or from the network, which alone makes use of it, and so is the sum: what
// is sent can be as short, and the bits are still the same on any number of ranks. With error
// feedback, what rounding takes from a sum, its residual, is added to the same sum of the next
// step: over the steps next to nothing is lost. error_feedback_layout.h says which sums are rounded
// then.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/exchange_observer.h"
#include "collectives/reduce/compressed_all_reduce.h"
#include "collectives/reduce/error_feedback_layout.h"
#include "collectives/reduce/transfer_sums.h"
#include "collectives/ring.h"
#include "collectives/sharding.h"
#include "collectives/slice_math.h"
#include "collectives/timed_waits.h"
#include "collectives/topology.h"

namespace lockstep {

// What a loss op reports for a lane: sum of losses, rows counted, rows predicted correctly, 0.
struct LaneStatistics {
  double values[4] = {};
};

// Sums over the global batch, equal on all ranks.
struct StepTotals {
  double loss_sum = 0;
  double valid_count = 0;
  double correct_count = 0;
  double top5_count = 0;
  double squared_norm = 0;  // of the summed gradient, before scaling; see exact_sum.h
  int64_t flags = 0;        // bitwise or of the ranks' flags
  uint64_t digest = 0;      // this rank's own
  uint64_t digest_sum = 0;  // of the ranks' digests, half by half modulo 2^32
  bool digests_differ = false;
  double slowest_ms = 0;  // the most that a rank was busy,
  int slowest_rank = 0;   // which one that was,
  double fastest_ms = 0;  // and the least
};

struct ReducerOptions {
  int lanes = 1;
  bool fast_order = false;  // let the library choose the order across ranks; the topology is flat
  std::vector<Range> buckets;
  Topology topology;  // of all ranks
  // Buckets of so many elements together may be under way at a time: exchanged_elements().
  int64_t exchanged_elements = 0;
  // So many buckets hold gradients; those after them are summed alike, but are no part of the norm.
  size_t gradient_buckets = ~size_t{0};
  bool norm = true;  // else nobody asks for squared_norm
  // All lanes of a rank run together: each has a gradient buffer of its own.
  bool lanes_together = false;
  // Where buckets share the memory of a gradient buffer: where each begins in it, and what of it to
  // fill with zeros before a lane writes it. None: a buffer is flat.
  std::vector<int64_t> bucket_offsets = {};
  std::vector<std::vector<Range>> bucket_gaps = {};
  int64_t gradient_elements = 0;  // of a buffer that is not flat
  // Where the sums over all ranks go, with several ranks; null: into the gradients. Packed ones are
  // as many buffers as a counter of the local lanes needs.
  OwnedFloats sums = {};
  // Every rank writes its sums into the gradients of all: where all share memory and none has sums
  // elsewhere. After reduce() all ranks have all sums.
  bool sums_everywhere = false;
  // What gradients are rounded to before they are added, and their sums; running statistics are
  // not.
  DType wire = DType::kF32;
  // With BF16: residuals, as many as ErrorFeedbackLayout says, of so many groups of lanes.
  // Borrowed.
  int residual_groups = 0;
  uint16_t* residuals = nullptr;
  // Where the tensors of the flat buffer begin, increasing, at chunks of squares (exact_sum.h); for
  // sums of bits by tensor. None: nobody asks for them.
  std::vector<int64_t> tensor_begins = {};
  // Takes the place of the exchange; then the gradients are flat, and all ranks have all sums.
  // Borrowed.
  CompressedAllReduce* compressed = nullptr;
};

class Reducer {
 public:
  // `gradients`: gradient_buffers(), or with packed sums one for all lanes that run at a time;
  // `staging`: staging_elements() floats for what may be under way. Both borrowed.
  Reducer(const RankCommunicators& communicators,
          SliceMath& math,
          ReducerOptions options,
          float* gradients,
          float* staging);

  // Reports to it, borrowed, from now on; null: to none.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }

  const LocalLanes& lanes() const { return lanes_; }

  // `transfers`, borrowed, sums what the step's exchanges offer and take; null: nothing does.
  void begin_step(TransferSums* transfers = nullptr);
  // Where the next lane's backward pass writes its gradients.
  float* lane_gradients() {
    return gradients_ + (across_first_ ? 0 : depth_of(lane_)) * gradient_elements_;
  }
  // The lane under way, where they run together and take turns.
  void select_lane(int local_lane) { lane_ = local_lane; }
  // All-gather of `bytes` of every lane: this rank's lie in their places already.
  void gather_lanes(std::byte* all, size_t bytes);
  // Where buckets share memory: the lane under way is about to write the first gradient of
  // `bucket`. Waits for those that its memory served before.
  void bucket_begins(int bucket);
  // The lane under way has finished every gradient of `bucket`. Called once per bucket and lane, in
  // increasing order.
  void bucket_ready(int bucket);
  void end_lane() { ++lane_; }
  // Between ops: moves the exchanges under way.
  void progress() {
    if (in_flight() > 0) communicator_.progress();
  }
  // Completes the exchange; afterwards this rank's parts in sums() are of all lanes, and all parts
  // with sums_everywhere.
  void reduce();
  // What a rank tells the others at the end of a step.
  struct Tidings {
    int64_t flags = 0;
    uint64_t digest = 0;  // of its state
    double busy_ms = 0;   // that it has worked, without its waits for others, since they last left
                          // totals() together
  };
  // Waits for what has been queued and sums the statistics and squares of the step over all
  // ranks.
  StepTotals totals(std::span<const LaneStatistics> local, const Tidings& tidings);
  // The sums of the bits of sums() in this rank's parts of the buckets, cut where tensors begin, of
  // the step whose totals() were last taken; none without ReducerOptions::tensor_begins.
  std::span<const uint32_t> bit_sums() const { return bit_sums_; }
  // Of no more use to the reducer: an optimizer may write over its parts.
  const OwnedFloats& sums() const { return sums_; }

  // Sums the statistics of an evaluation over all lanes; `local` is complete.
  StepTotals sum_statistics(std::span<const LaneStatistics> local) {
    return exchange_totals(local, {});
  }
  // Milliseconds that the host spent waiting for other ranks since begin_step().
  double exposed_ms() const { return waits_.ms(); }

 private:
  StepTotals exchange_totals(std::span<const LaneStatistics> local, const Tidings& tidings);
  // One bucket's way through the levels of the topology.
  struct Exchange {
    int bucket = -1;
    int lane = 0;
    Range range;  // of which this level sums one part
    std::byte* staging = nullptr;
    size_t level = 0;                 // under way
    const std::byte* sent = nullptr;  // by this level, of the whole range
    std::byte* received = nullptr;    // parts of the group
    Arrival arrival = {};
    double start_ms = 0;  // of the level, while somebody observes
  };
  int depth_of(int lane) const {
    return options_.lanes_together ? lane
                                   : __builtin_popcount(static_cast<unsigned>(lane % counted_));
  }
  void merge_lanes(int bucket);
  void count(int bucket, float* sums, int64_t stride, int lane, int64_t n);
  void merge(int bucket, const LaneSum& local, float* into, const float* from, int64_t n);
  void add_to_compressed(int bucket);
  void round_lane(int bucket, int lane, float* gradients, int64_t n);
  DType wire_of(int bucket) const;
  bool keeps_residuals(int bucket) const {
    return residuals_ && static_cast<size_t>(bucket) < options_.gradient_buckets;
  }
  const Range& bucket_range(int bucket) const {
    return options_.buckets[static_cast<size_t>(bucket)];
  }
  int64_t bucket_offset(int bucket) const {
    return options_.bucket_offsets[static_cast<size_t>(bucket)];
  }
  // Where a gradient buffer holds element `flat` of a bucket.
  float* gradient_at(float* buffer, int bucket, int64_t flat) const;
  Range own_part(int bucket) const;
  float* own_sums(int bucket, int lane) const;
  bool overlap(int bucket, int other) const;
  size_t in_flight() const { return ring_.parts(); }
  // The exchange of that number, counted as exchanges_ does, which is under way.
  Exchange& exchange_of(uint64_t number) {
    return exchanges_under_way_[number % exchanges_under_way_.size()];
  }
  void start_exchange(int bucket);
  void start_level(Exchange& exchange);
  TreeSumTerms terms_of(const Exchange& exchange, const Range& mine, const void** arrays) const;
  int copies_of(const Exchange& exchange, const Range& mine, float** copies) const;
  void sum_level(Exchange& exchange);
  void complete_oldest();
  void cut_own_parts();
  void measure_sums(int bucket);
  bool in_memory(size_t level) const { return node_ != nullptr && level == 0; }
  using Wait = ExchangeObserver::Wait;

  // What the ranks say to each other at the end of a step, one after the other: a Report and the
  // statistics of each lane.
  struct Report {
    Tidings tidings;
    ExactSum squares;  // of its parts
  };
  std::vector<std::byte> exchange_;

  Communicator& communicator_;  // of slices
  Communicator& control_;
  NodeMemory* node_;
  SliceMath& math_;
  TimedWaits waits_;
  TransferSums* transfers_ = nullptr;
  ReducerOptions options_;
  float* gradients_;
  OwnedFloats sums_;
  bool across_first_;  // lanes are summed across ranks one by one, then counted
  std::optional<ErrorFeedbackLayout> residuals_;
  float* staging_;
  int64_t elements_;           // of all buckets
  int64_t gradient_elements_;  // of a gradient buffer
  LocalLanes lanes_;
  int counted_;                    // of these, in a binary counter
  int part_;                       // of each bucket, this rank's
  std::vector<RankGroup> groups_;  // by level
  int lane_ = 0;

  Ring ring_;  // what the exchanges under way take of exchanged_elements, oldest first
  std::array<Exchange, kMostExchangesInFlight> exchanges_under_way_;
  uint64_t exchanges_ = 0;               // started since the reducer was made
  std::vector<uint64_t> last_exchange_;  // of each bucket
  std::vector<Arrival> last_reading_;    // of its gradients by the ranks of the node
  ExactSum* squares_;                    // of my parts in this step, in memory of allocate_host()
  std::vector<std::vector<Range>> own_pieces_;  // of each bucket, where bits are summed
  std::vector<size_t> first_piece_;             // of each bucket, among all
  std::span<uint32_t> bit_sums_;                // of them
};

}  // namespace lockstep
