#pragma once
// Sums the gradients of single lanes to the gradient of the global batch.
//
// Three implementations: TreeExchange and LaneExchange add in the order of the lanes' tree
// (collectives/layout/lane_tree.h), so that the bits are the same on any number of ranks and nodes;
// LibraryExchange leaves the order across the ranks to the library. With CompressedExchange an
// approximation of the sum travels instead.
//
// The executor tells an exchange which bucket its backward pass begins and completes. A bucket's
// exchange runs while earlier layers are still being differentiated.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/exchange/exchange_observer.h"
#include "collectives/exchange/slice_math.h"
#include "collectives/exchange/timed_waits.h"
#include "collectives/layout/row_layout.h"
#include "collectives/reduce/gradient_buffers.h"
#include "collectives/reduce/own_sums.h"
#include "collectives/reduce/transfer_checksums.h"

namespace lockstep::collectives {

// Gradients of tables that are added row by row.
struct RowGradients {
  RowLayout layout = {};
  std::byte* data = nullptr;  // borrowed: layout.bytes
};

// What every implementation needs.
struct GradientExchangeSetup {
  RankCommunicators communicators;
  SliceMath& math;
  LaneShares shares;
  Topology topology;
  GradientBuffers gradients;
  OwnedFloats sums = {};  // see OwnSums
  SumMeasures measures = {};
  RowGradients rows = {};
};

// The buffer that receives what is in flight.
struct StagingMemory {
  float* data = nullptr;  // borrowed: staging_elements() floats for so many elements
  int64_t elements = 0;   // exchanged_elements()
};

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Sets the observer, borrowed; null removes it.
  void observe(ExchangeObserver* observer) { waits_.observe(observer); }

  // Called with each bucket, in order, once this rank's part of it is summed. Not with
  // CompressedExchange.
  using OnSummed = std::function<void(int bucket)>;
  void on_summed(OnSummed callback) { on_summed_ = std::move(callback); }

  const LocalLanes& lanes() const { return lanes_; }
  // Turns in which the ranks run their lanes: at least lanes().count. In a turn without a lane of
  // its own, a rank reports its buckets all the same: there are exchanges of the others.
  int turns() const { return turns_; }

  // `transfers`, borrowed, computes checksums of what the step's exchanges offer and take; may be
  // null.
  virtual void begin_step(TransferChecksums* transfers);
  // The buffer for the gradients of the current lane's backward pass.
  virtual float* lane_gradients() = 0;
  // Selects the current lane, if lanes run together.
  void select_lane(int local_lane) { lane_ = local_lane; }
  // All-gather of `bytes` of every lane; this rank's are at their offsets in `all` already.
  void gather_lanes(std::byte* all, size_t bytes);
  // The current lane's place for what a table's tokens add to its gradient. The lane fills it
  // before it ends.
  struct LaneRows {
    std::byte *ids = nullptr, *rows = nullptr;
  };
  LaneRows lane_rows(size_t table) const;
  // For buckets that share memory: the current lane is about to write the first gradient of
  // `bucket`. Waits for the exchanges that still read this memory.
  void bucket_begins(int bucket);
  // The current lane has written every gradient of `bucket`. Called once for each bucket and lane,
  // with increasing buckets.
  virtual void bucket_ready(int bucket) = 0;
  void end_lane() { ++lane_; }
  // Called between ops: moves what is in flight.
  void progress() { slices_.progress(); }
  // Completes the exchanges. Afterwards sums() has this rank's parts, summed over all lanes, or all
  // parts if the implementation says so.
  virtual void reduce();
  // After reduce(): adds the rows of all lanes to the sums of the tables, this rank's parts of them
  // or, if `whole`, all of what sums() has. Collective.
  void add_rows(bool whole);

  // The sums of this rank's parts. They are no longer read here, so an optimizer may overwrite
  // them.
  const OwnedFloats& sums() const { return own_.place(); }
  // The squares of the sums, once the queued work is done.
  const ExactSum& squares() const { return own_.squares(); }
  // The checksums of this rank's parts of the buckets in sums(), cut at SumMeasures::tensor_begins.
  std::span<const uint32_t> bit_checksums() const { return own_.checksums(); }
  // Milliseconds that the host has waited for other ranks since begin_step().
  double exposed_ms() const { return waits_.ms(); }

 protected:
  explicit GradientExchange(GradientExchangeSetup setup);

  using Wait = ExchangeObserver::Wait;
  int ranks() const { return shares_.ranks; }
  bool together() const { return shares_.order == LaneOrder::kTogether; }
  // This exchange reads the bucket's memory until it is completed.
  void note_exchange(int bucket, uint64_t number) {
    last_exchange_[static_cast<size_t>(bucket)] = number;
  }
  virtual size_t in_flight() const = 0;
  // This rank's part of a bucket is summed, and still in cache. Rows may have to be added.
  void own_part_summed(int bucket);
  // Completes the exchanges up to this number; waits until the ranks of the node have read the
  // bucket, if they read it in place.
  virtual void complete_until(uint64_t number, int bucket) = 0;

  Communicator& slices_;
  SliceMath& math_;
  NodeMemory* node_;
  int rank_;
  TimedWaits waits_;
  TransferChecksums* transfers_ = nullptr;
  LaneShares shares_;
  LocalLanes lanes_;
  int turns_;
  GradientBuffers gradients_;
  OwnSums own_;
  int lane_ = 0;  // the current one, or turn

 private:
  bool has_rows(int bucket) const;

  RowGradients rows_;
  OnSummed on_summed_;
  std::vector<int> lanes_of_ranks_, lanes_of_turn_;  // counts, for gather_lanes()
  std::vector<uint64_t> last_exchange_;              // of each bucket
};

}  // namespace lockstep::collectives
