#pragma once
// Sums the gradients of single lanes to the gradient of the global batch, in one fixed order on any
// number of ranks.
//
// The lanes are the leaves of one balanced binary tree. A rank sums the subtree of its own lanes
// with a binary counter, which needs at most log2(local lanes) + 1 gradient buffers. The upper
// levels run across ranks, bucket by bucket, as a reduce-scatter by pairwise exchange: first within
// nodes, then between them (topology.h). Each rank receives the others' sums of its part and adds
// them pairwise, ((0 + 1) + (2 + 3)) + ... So the additions and their order are the same whatever
// the number of ranks and nodes. Ranks that share memory read the others' sums in place. reducer.cc
// explains the algorithm.
//
// With packed sums (ZeRO stages 2 and 3) the order is reversed: the ranks run neighbouring lanes at
// the same time, each lane's gradients are summed across the ranks at once, and a rank's counter
// holds only its own parts. So no rank has a full buffer of gradients: a bucket's memory is reused
// as soon as the bucket is summed. In return a rank sends its gradients once for every lane.
//
// If `wire` rounds, every term of the tree is rounded before it is added, also within a rank and in
// shared memory, and so is the sum over all lanes. Only the network profits, but the bits stay the
// same on any number of ranks. With error feedback, what rounding takes from a sum (its residual)
// is added to the same sum of the next step; error_feedback_layout.h describes which sums are
// rounded then.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/exchange_observer.h"
#include "collectives/reduce/compressed_all_reduce.h"
#include "collectives/reduce/error_feedback_layout.h"
#include "collectives/reduce/transfer_checksums.h"
#include "collectives/ring.h"
#include "collectives/sharding.h"
#include "collectives/slice_math.h"
#include "collectives/timed_waits.h"
#include "collectives/topology.h"

namespace lockstep {

// The statistics that a loss op reports for a lane, in this order: sum of losses, rows counted,
// rows predicted correctly, rows whose class is among the top 5 predictions.
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
  uint64_t digest_sum = 0;  // sum of the ranks' digests, each 32-bit half modulo 2^32
  bool digests_differ = false;
  double slowest_ms = 0;  // the longest time that a rank was busy,
  int slowest_rank = 0;   // the rank that was,
  double fastest_ms = 0;  // and the shortest time
};

struct ReducerOptions {
  int lanes = 1;
  bool fast_order = false;  // the library chooses the order across ranks; needs a flat topology
  std::vector<Range> buckets;
  Topology topology;  // of all ranks
  // Limit of the elements of all buckets in flight: exchanged_elements().
  int64_t exchanged_elements = 0;
  // The first gradient_buckets buckets hold gradients. Later ones are summed too, but do not count
  // in the norm.
  size_t gradient_buckets = ~size_t{0};
  bool norm = true;  // false: squared_norm is not computed
  // All lanes of a rank run together, and each has a gradient buffer of its own.
  bool interleaved_lanes = false;
  // For buckets that share the memory of a gradient buffer: the offset of each in it, and the gaps
  // to fill with zeros before a lane writes it. Empty: the buffer is flat.
  std::vector<int64_t> bucket_offsets = {};
  std::vector<std::vector<Range>> bucket_gaps = {};
  int64_t gradient_elements = 0;  // elements of a buffer that is not flat
  // The buffer for the sums over all ranks, if there are several; null: the gradients' own. If
  // packed, as many buffers as a counter of the local lanes needs.
  OwnedFloats sums = {};
  // Every rank writes its sums to the gradient buffers of all ranks, so that after reduce() all
  // ranks have all sums. Needs one node with shared memory, and `sums` empty.
  bool replicated_sums = false;
  // The type to which gradients are rounded before they are added, and to which their sum is.
  // Running statistics are not rounded.
  DType wire = DType::kF32;
  // For kBF16: residuals of `residual_groups` groups of lanes, ErrorFeedbackLayout::elements() of
  // them, borrowed. Null: no error feedback.
  int residual_groups = 0;
  uint16_t* residuals = nullptr;
  // Increasing offsets of the tensors in the flat buffer, each at the start of a chunk of squares
  // (exact_sum.h); for checksums by tensor. Empty: no checksums.
  std::vector<int64_t> tensor_begins = {};
  // Replaces the exchange, if not null. Then the gradients are flat, and all ranks have all sums.
  // Borrowed.
  CompressedAllReduce* compressed = nullptr;
};

class Reducer {
 public:
  // `gradients` has gradient_buffers() buffers or, with packed sums, one for each lane that runs at
  // the same time. `staging` has staging_elements() floats for what is in flight. Both are
  // borrowed.
  Reducer(const RankCommunicators& communicators,
          SliceMath& math,
          ReducerOptions options,
          float* gradients,
          float* staging);

  // Sets the observer, borrowed; null removes it.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }

  const LocalLanes& lanes() const { return lanes_; }

  // `transfers`, borrowed, computes checksums of what the step's exchanges offer and take; may be
  // null.
  void begin_step(TransferChecksums* transfers = nullptr);
  // The buffer for the gradients of the next lane's backward pass.
  float* lane_gradients() {
    return gradients_ + (reduces_each_lane_ ? 0 : depth_of(lane_)) * gradient_elements_;
  }
  // Selects the current lane, for interleaved lanes.
  void select_lane(int local_lane) { lane_ = local_lane; }
  // All-gather of `bytes` of every lane; this rank's are at their offsets in `all` already.
  void gather_lanes(std::byte* all, size_t bytes);
  // For buckets that share memory: the current lane is about to write the first gradient of
  // `bucket`. Waits for the exchanges that still read this memory.
  void bucket_begins(int bucket);
  // The current lane has written every gradient of `bucket`. Called once for each bucket and lane,
  // with increasing buckets.
  void bucket_ready(int bucket);
  void end_lane() { ++lane_; }
  // Called between ops: moves the exchanges in flight.
  void progress() {
    if (in_flight() > 0) communicator_.progress();
  }
  // Completes the exchanges. Afterwards sums() has this rank's parts, summed over all lanes, or all
  // parts with replicated_sums.
  void reduce();
  // What a rank reports to the others at the end of a step.
  struct StepReport {
    int64_t flags = 0;
    uint64_t digest = 0;  // of its state
    // Time that it has worked, without its waits for others, since all ranks last left totals().
    double busy_ms = 0;
  };
  // Waits for the queued work, then sums the statistics and squares of the step over all ranks.
  StepTotals totals(std::span<const LaneStatistics> local, const StepReport& step_report);
  // The checksums of this rank's parts of the buckets in sums(), cut at
  // ReducerOptions::tensor_begins, for the step of the last totals(). Empty without tensor_begins.
  std::span<const uint32_t> bit_checksums() const { return bit_checksums_; }
  // The sums of this rank's parts. The reducer no longer reads them, so an optimizer may overwrite
  // them.
  const OwnedFloats& sums() const { return sums_; }

  // Sums the statistics of an evaluation over all lanes; `local` is complete.
  StepTotals sum_statistics(std::span<const LaneStatistics> local) {
    return exchange_totals(local, {});
  }
  // Milliseconds that the host has waited for other ranks since begin_step().
  double exposed_ms() const { return waits_.ms(); }

 private:
  StepTotals exchange_totals(std::span<const LaneStatistics> local, const StepReport& step_report);
  // The path of one bucket through the levels of the topology.
  struct Exchange {
    int bucket = -1;
    int lane = 0;
    Range range;  // the current level sums one part of it
    std::byte* staging = nullptr;
    size_t level = 0;                 // the current one
    const std::byte* sent = nullptr;  // by this level, for the full range
    std::byte* received = nullptr;    // parts of the group
    Arrival arrival = {};
    double start_ms = 0;  // of the level, if there is an observer
  };
  int depth_of(int lane) const {
    return options_.interleaved_lanes
               ? lane
               : __builtin_popcount(static_cast<unsigned>(lane % lanes_per_sum_));
  }
  void merge_lanes(int bucket);
  void propagate_carries(int bucket, float* sums, int64_t stride, int lane, int64_t n);
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
  // The address of element `flat` of a bucket in a gradient buffer.
  float* gradient_at(float* buffer, int bucket, int64_t flat) const;
  Range own_part(int bucket) const;
  float* own_sums(int bucket, int lane) const;
  bool overlap(int bucket, int other) const;
  size_t in_flight() const { return ring_.parts(); }
  // An exchange in flight, by its number as counted in exchanges_.
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

  // What the ranks send each other at the end of a step, one rank after the other: a Report and the
  // statistics of each lane.
  struct Report {
    StepReport step_report;
    ExactSum squares;  // of this rank's parts
  };
  std::vector<std::byte> exchange_;

  Communicator& communicator_;  // of slices
  Communicator& control_;
  NodeMemory* node_;
  SliceMath& math_;
  TimedWaits waits_;
  TransferChecksums* transfers_ = nullptr;
  ReducerOptions options_;
  float* gradients_;
  OwnedFloats sums_;
  bool reduces_each_lane_;  // each lane is summed across the ranks first, then added to the counter
  std::optional<ErrorFeedbackLayout> residuals_;
  float* staging_;
  int64_t elements_;           // of all buckets
  int64_t gradient_elements_;  // of a gradient buffer
  LocalLanes lanes_;
  int lanes_per_sum_;              // that are summed in one binary counter
  int part_;                       // this rank's, of each bucket
  std::vector<RankGroup> groups_;  // by level
  int lane_ = 0;

  Ring ring_;  // the elements in flight, as part of exchanged_elements; oldest first
  std::array<Exchange, kMaxExchangesInFlight> exchanges_under_way_;
  uint64_t exchanges_ = 0;               // started since construction
  std::vector<uint64_t> last_exchange_;  // number of each bucket's last exchange
  std::vector<Arrival> last_read_;       // by the ranks of the node, of each bucket's gradients
  ExactSum* squares_;                    // of my parts in this step; in memory from allocate_host()
  std::vector<std::vector<Range>> own_pieces_;  // of each bucket: ranges with a checksum each
  std::vector<size_t> first_piece_;             // of each bucket, among all pieces
  std::span<uint32_t> bit_checksums_;           // of all pieces
};

}  // namespace lockstep
