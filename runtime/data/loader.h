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

namespace lockstep {

// The global batch is lane_batch * lanes samples; this rank fills local_lanes lanes: first_lane and
// every lane_stride-th from there.
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
  int64_t valid_samples = 0;          // rows from here on are zeros; only in evaluation
  int64_t tokens = 0;  // of the longest one without the padding behind it; of those with documents
};

struct LoaderOptions {
  BatchGeometry geometry;
  uint64_t seed = 0;
  bool shuffle = false;  // training only; evaluation reads in stored order
  bool training = true;
  int64_t first_step = 0;  // step of the first batch that next() gives
  int64_t steps = -1;      // batches before next() gives null; -1: endless (evaluation: to the end)
  int64_t samples = -1;    // evaluation only: read only the first so many samples; -1: all
  int64_t ring_batches = 2;  // >= 1; at least 2 for filling to overlap with use
  int threads = 1;           // >= 1; the batches are the same whatever their number
};

// Threads for a loader of `dataset`: `configured` (data.decode_threads), or where that is 0 one,
// and for a costly data set all `compute_threads` of the rank.
int choose_loader_threads(const Dataset& dataset, int64_t configured, int compute_threads);

// Bytes of the memory to hand to a Loader.
size_t loader_bytes(const SampleSpec& input,
                    const SampleSpec& target,
                    const BatchGeometry& geometry,
                    int64_t ring_batches);
size_t loader_bytes(const Dataset& dataset, const BatchGeometry& geometry, int64_t ring_batches);

// Ring length for batches of `batch_bytes` (all local lanes of a step, or loader_bytes of a ring of
// 1): about 4 MiB, at least 2 and at most 64 batches.
int64_t default_ring_batches(size_t batch_bytes);

// Steps that one evaluation of `samples` samples takes.
int64_t evaluation_steps(int64_t samples, const BatchGeometry& geometry);

// Gives the batches of consecutive steps.
//
// Training: row r of lane l in step s is sample number p = s * global_batch + l * lane_batch + r of
// the run: position p % N of epoch p / N. Batches straddle epochs, nothing is dropped, and the step
// is all the state there is: a loader with first_step = s continues what another one left at s.
// Evaluation: positions 0..M-1 in stored order; the last batch is padded with zeros.
//
// next(), restart() and the destructor are for one thread. Allocates nothing after construction,
// but for the decoders that costly data sets keep per thread.
class Loader {
 public:
  // Keeps references to `dataset` and to `memory`, which is loader_bytes() long, 64-byte aligned,
  // and not touched by others while the loader lives. Filling starts at once.
  Loader(const Dataset& dataset, const LoaderOptions& options, std::span<std::byte> memory);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;
  ~Loader();

  // The local_lanes lanes of the next step, valid until the next call; null after the last batch.
  // Rethrows what the data set threw, once the batches before the failed one have been given out.
  const LaneBatch* next();

  // Whether next() would give at once.
  bool ready() const { return produced_.load() > taken_; }

  // Begins again at `first_step`, in the same memory and with the same number of steps. Used to
  // evaluate repeatedly. What next() gave before is invalid.
  void restart(int64_t first_step);

 private:
  void run();             // body of the only thread
  void fill_ring();       // fills until the last batch or until halted
  bool wait_for_space();  // false: halted
  void announce_batch();
  void release_last();  // gives the slot of the last batch back
  void wait_for_batch();
  void halt_and_wait();  // until the threads are parked
  void end_threads();
  int64_t batches_from(int64_t first_step) const;
  EpochOrder make_order() const;
  // Reads rows [begin, end) of the rank's part of a step, lane after lane.
  void fill_rows(EpochOrder& order, int64_t step, int64_t slot, int64_t begin, int64_t end);
  void set_valid_samples(int64_t step, int64_t slot);

  // Of several threads (loader_threads.cc); with the mutex held.
  void run_one_of_many();  // body
  bool can_claim() const;
  bool is_parked() const;
  void finish_rows(int64_t batch, int64_t rows);

  const Dataset& dataset_;
  const LoaderOptions options_;
  const int64_t samples_;  // in an epoch, or in the evaluation
  const int64_t rows_;     // of a batch: lane_batch * local_lanes
  int64_t first_step_;
  int64_t batches_;          // to give from first_step_; -1: endless
  const int64_t refill_at_;  // the thread, once asleep, wakes when so few batches are in the ring
  std::byte* memory_;
  std::vector<LaneBatch> lanes_;  // (ring_batches, local_lanes)

  // Counts of batches since first_step_; batch b lies in slot b % ring_batches.
  alignas(64) std::atomic<int64_t> produced_{0};  // written by the threads
  std::atomic<bool> producer_asleep_{false};
  alignas(64) std::atomic<int64_t> released_{0};  // written by the user
  std::atomic<bool> consumer_asleep_{false};
  std::atomic<bool> halt_{false};  // asks the thread to park
  int64_t taken_ = 0;

  std::mutex mutex_;  // guards what follows, and falling asleep
  std::condition_variable producer_wakes_, consumer_wakes_;
  bool parked_ = false;  // the only thread is done, failed or halted, and waits for restart or end
  bool quit_ = false;
  std::exception_ptr error_;
  // Of several threads.
  int64_t next_row_ = 0;           // to be claimed, counted over all batches
  int64_t failed_row_ = -1;        // first of the rows among which error_ arose
  int working_ = 0;                // threads that are not waiting for something to claim
  std::vector<int64_t> unfilled_;  // (ring_batches) rows still to come

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace lockstep
