#pragma once
// The loader: threads that fill a ring of batches ahead of the trainer.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/data/dataset.h"
#include "runtime/data/sample_order.h"

namespace lockstep::data {

// Which part of the global batch a rank loads. The global batch is split into `lanes` lanes of
// lane_batch samples each, whatever the number of ranks. This rank fills local_lanes of them: lanes
// first_lane, first_lane + lane_stride, ...
struct BatchGeometry {
  int64_t lane_batch = 1;
  int lanes = 1;
  int first_lane = 0;
  int local_lanes = 1;
  int lane_stride = 1;
  int64_t global_batch() const { return lane_batch * lanes; }
};

// The samples of one lane in one step, in memory that the loader fills; 64-byte aligned.
struct LaneBatch {
  const std::byte* input = nullptr;   // (lane_batch, ...input().shape)
  const std::byte* target = nullptr;  // (lane_batch, ...target().shape)
  int64_t valid_samples = 0;          // rows from here on are zeros; lane_batch in training
  int64_t tokens = 0;  // of the longest sample without padding; BatchStage sets it for (R, T) text
};

struct LoaderOptions {
  BatchGeometry geometry;
  uint64_t seed = 0;
  bool shuffle = false;  // training only; evaluation reads in stored order
  bool training = true;
  int64_t first_step = 0;    // step of the first batch that next() returns
  int64_t steps = -1;        // batches until next() returns null; -1: endless, evaluation: all
  int64_t samples = -1;      // evaluation only: read only this many samples; -1: all
  int64_t ring_batches = 2;  // >= 1; filling overlaps with use only from 2 on
  int threads = 1;           // >= 1; does not change the batches
};

// Threads for a loader of `dataset`: `configured` (data.decode_threads) unless that is 0. Otherwise
// all `compute_threads` of the rank if the data set is_expensive(), otherwise one.
int choose_loader_threads(const Dataset& dataset, int64_t configured, int compute_threads);

// Bytes of the memory that a Loader needs.
size_t loader_bytes(const SampleSpec& input,
                    const SampleSpec& target,
                    const BatchGeometry& geometry,
                    int64_t ring_batches);
size_t loader_bytes(const Dataset& dataset, const BatchGeometry& geometry, int64_t ring_batches);

// Ring length for batches of `batch_bytes` (all local lanes of a step: loader_bytes() of a ring of
// 1). The ring has about 4 MiB, and from 2 to 64 batches.
int64_t default_ring_batches(size_t batch_bytes);

// Steps of one evaluation of `samples` samples.
int64_t evaluation_steps(int64_t samples, const BatchGeometry& geometry);

// Returns the batches of consecutive steps.
//
// Training: row r of lane l in step s is sample number p = s * global_batch + l * lane_batch + r of
// the run: position p % N of epoch p / N, with N samples in an epoch. Batches straddle epochs and
// nothing is dropped. The step is the only state: a loader with first_step = s continues where
// another one stopped before step s.
// Evaluation: positions 0..M-1 in stored order; the last batch is padded with zeros.
//
// next(), restart() and the destructor must be called by one thread. Nothing is allocated after
// construction, except by decoders, of which an expensive data set keeps one per thread.
class Loader {
 public:
  // Keeps references to `dataset` and to `memory`, which must be loader_bytes() long, 64-byte
  // aligned, and used by nobody else while the loader exists. Filling starts at once. Throws
  // ConfigError if a thread cannot be started.
  Loader(const Dataset& dataset, const LoaderOptions& options, std::span<std::byte> memory);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  // The local_lanes lanes of the next step, valid until the next call; null after the last batch.
  // Rethrows what the data set threw, after all batches before the failed one have been returned.
  const LaneBatch* next();

  // Whether next() would return without waiting.
  bool ready() const { return produced_.load() > taken_; }

  // Starts again at `first_step`, in the same memory and with the same number of steps, for
  // repeated evaluation. Invalidates what next() returned before.
  void restart(int64_t first_step);

 private:
  void run();             // body of the only thread
  void fill_ring();       // fills until the last batch or until halted
  bool wait_for_space();  // returns false if halted
  void announce_batch();
  void release_last();  // returns the slot of the last batch to the ring
  void wait_for_batch();
  void halt_and_wait();  // waits until all threads are parked
  void end_threads();
  int64_t batches_from(int64_t first_step) const;
  EpochOrder make_order() const;
  // Reads rows [begin, end) of the rank's part of a step, lane after lane.
  void fill_rows(EpochOrder& order, int64_t step, int64_t slot, int64_t begin, int64_t end);
  void set_valid_samples(int64_t step, int64_t slot);

  // Used if there are several threads (loader_threads.cc). Called with the mutex held.
  void run_one_of_many();  // body of each thread; takes the mutex itself
  bool can_claim() const;
  bool is_parked() const;
  void finish_rows(int64_t batch, int64_t rows);

  const Dataset& dataset_;
  const LoaderOptions options_;
  const int64_t samples_;  // in an epoch, or in the evaluation
  const int64_t rows_;     // of a batch: lane_batch * local_lanes
  int64_t first_step_;
  int64_t batches_;          // to return from first_step_ on; -1: endless
  const int64_t refill_at_;  // a sleeping thread wakes once the ring has at most this many batches
  std::byte* memory_;
  std::vector<LaneBatch> lanes_;  // (ring_batches, local_lanes)

  // Numbers of batches since first_step_. Batch b is in slot b % ring_batches.
  alignas(64) std::atomic<int64_t> produced_{0};  // written by the threads
  std::atomic<bool> producer_asleep_{false};
  alignas(64) std::atomic<int64_t> released_{0};  // written by the consumer
  std::atomic<bool> consumer_asleep_{false};
  std::atomic<bool> halt_{false};  // asks the thread to park
  int64_t taken_ = 0;

  std::mutex mutex_;  // guards the members below, and going to sleep
  std::condition_variable producer_wakes_, consumer_wakes_;
  bool parked_ = false;  // the only thread is done, failed or halted, and waits for restart or end
  bool quit_ = false;
  std::exception_ptr error_;
  // Only with several threads.
  int64_t next_row_ = 0;           // the next row to claim, counted over all batches
  int64_t failed_row_ = -1;        // first row of the claim in which error_ was thrown
  int working_ = 0;                // threads that are not waiting for rows to claim
  std::vector<int64_t> unfilled_;  // (ring_batches) rows not yet filled

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace lockstep::data
