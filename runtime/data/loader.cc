#include "runtime/data/loader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <system_error>

#include "runtime/base/error.h"

namespace lockstep::data {

// The loader is a bounded ring buffer. Its consumer is the trainer, which should rarely wait or
// take a lock. This file has the producer that is a single thread; loader_threads.cc has the one of
// several threads.
//
//      released_         taken_           produced_        released_ + ring_batches
//          |  in use        |  filled         |  free           |
//   -------+----------------+-----------------+-----------------+------->  batch number
//
// Batch b is in slot b % ring_batches. Only the producer advances produced_, and only the consumer
// advances released_: each next() releases the batch that the last one returned. While the ring is
// neither empty nor full, nobody takes the mutex. The producer sleeps if the ring is full, and only
// wakes once it is half empty (refill_at_), so that one wake-up pays for many steps if batches are
// tiny. The consumer sleeps only if the ring is empty.
//
// No wake-up is lost. Before a side sleeps, it sets its asleep flag and then reads the other side's
// counter again, under the mutex. The other side advances its counter first and reads the flag
// then. All four operations are sequentially consistent, so at least one side sees the other's
// write. Whoever sees the flag locks and unlocks the mutex before it notifies, so that it cannot
// notify between the sleeper's check and its wait.

namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kRingBytes = size_t{4} << 20;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

int64_t samples_to_read(const Dataset& dataset, const LoaderOptions& options) {
  if (options.training || options.samples < 0) return dataset.samples();
  return std::min(dataset.samples(), options.samples);
}

}  // namespace

size_t loader_bytes(const SampleSpec& input,
                    const SampleSpec& target,
                    const BatchGeometry& geometry,
                    int64_t ring_batches) {
  const size_t rows = static_cast<size_t>(geometry.lane_batch);
  const size_t lane = aligned(rows * input.bytes()) + aligned(rows * target.bytes());
  return lane * static_cast<size_t>(geometry.local_lanes) * static_cast<size_t>(ring_batches);
}

size_t loader_bytes(const Dataset& dataset, const BatchGeometry& geometry, int64_t ring_batches) {
  return loader_bytes(dataset.input(), dataset.target(), geometry, ring_batches);
}

int64_t default_ring_batches(size_t batch_bytes) {
  return static_cast<int64_t>(
      std::clamp<size_t>(kRingBytes / std::max<size_t>(batch_bytes, 1), 2, 64));
}

int choose_loader_threads(const Dataset& dataset, int64_t configured, int compute_threads) {
  if (configured > 0) return static_cast<int>(configured);
  return dataset.is_expensive() ? compute_threads : 1;
}

int64_t evaluation_steps(int64_t samples, const BatchGeometry& geometry) {
  return (samples + geometry.global_batch() - 1) / geometry.global_batch();
}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options, std::span<std::byte> memory)
    : dataset_(dataset),
      options_(options),
      samples_(samples_to_read(dataset, options)),
      rows_(options.geometry.lane_batch * options.geometry.local_lanes),
      first_step_(options.first_step),
      batches_(batches_from(options.first_step)),
      refill_at_(std::min((options.ring_batches + 1) / 2, options.ring_batches - 1)) {
  const BatchGeometry& geometry = options_.geometry;
  LOCKSTEP_CHECK(
      geometry.lane_batch >= 1 && geometry.local_lanes >= 1 && geometry.first_lane >= 0 &&
      geometry.first_lane + (geometry.local_lanes - 1) * geometry.lane_stride < geometry.lanes);
  LOCKSTEP_CHECK(options_.ring_batches >= 1 && options_.first_step >= 0 && options_.threads >= 1);
  LOCKSTEP_CHECK(memory.size() >= loader_bytes(dataset, geometry, options_.ring_batches));
  LOCKSTEP_CHECK(reinterpret_cast<uintptr_t>(memory.data()) % kAlignment == 0);
  const size_t input_bytes = aligned(geometry.lane_batch * dataset.input().bytes());
  const size_t target_bytes = aligned(geometry.lane_batch * dataset.target().bytes());
  lanes_.resize(options_.ring_batches * geometry.local_lanes);
  std::byte* next = memory.data();
  for (LaneBatch& lane : lanes_) {
    lane.input = next;
    lane.target = next + input_bytes;
    next += input_bytes + target_bytes;
  }
  memory_ = memory.data();
  unfilled_.assign(static_cast<size_t>(options_.ring_batches), rows_);
  working_ = options_.threads;
  threads_.reserve(static_cast<size_t>(options_.threads));
  const auto body = options_.threads == 1 ? &Loader::run : &Loader::run_one_of_many;
  try {
    for (int i = 0; i < options_.threads; ++i) threads_.emplace_back(body, this);
  } catch (const std::system_error& error) {
    end_threads();
    throw ConfigError(
        "data.decode_threads: cannot start thread {} of {}: {}; set fewer threads, or raise the "
        "process limit (ulimit -u, docker --pids-limit)",
        threads_.size() + 1,
        options_.threads,
        error.code().message());
  }
}

Loader::~Loader() {
  halt_and_wait();
  end_threads();
}

void Loader::end_threads() {
  {
    std::lock_guard lock(mutex_);
    halt_.store(true);
    quit_ = true;
  }
  producer_wakes_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

EpochOrder Loader::make_order() const {
  return EpochOrder(dataset_.order(),
                    options_.seed,
                    options_.training && options_.shuffle,
                    options_.geometry.global_batch());
}

int64_t Loader::batches_from(int64_t first_step) const {
  if (options_.training) return options_.steps;
  const int64_t all = evaluation_steps(samples_, options_.geometry);
  const int64_t rest = std::max<int64_t>(0, all - first_step);
  return options_.steps < 0 ? rest : std::min(rest, options_.steps);
}

// The consumer's side.

const LaneBatch* Loader::next() {
  release_last();
  if (batches_ >= 0 && taken_ == batches_) return nullptr;
  if (produced_.load() <= taken_) wait_for_batch();
  const int64_t slot = taken_ % options_.ring_batches;
  ++taken_;
  return &lanes_[slot * options_.geometry.local_lanes];
}

void Loader::release_last() {
  if (released_.load(std::memory_order_relaxed) == taken_) return;
  released_.store(taken_);
  const bool several = options_.threads > 1;
  if (!several && (!producer_asleep_.load() || produced_.load() - taken_ > refill_at_)) return;
  { std::lock_guard lock(mutex_); }
  producer_wakes_.notify_all();
}

void Loader::wait_for_batch() {
  std::unique_lock lock(mutex_);
  consumer_asleep_.store(true);
  consumer_wakes_.wait(lock, [this] { return produced_.load() > taken_ || is_parked(); });
  consumer_asleep_.store(false);
  if (produced_.load() > taken_) return;
  LOCKSTEP_CHECK(error_ != nullptr, "the loader stopped at batch {} of {}", taken_, batches_);
  std::rethrow_exception(error_);
}

void Loader::restart(int64_t first_step) {
  LOCKSTEP_CHECK(first_step >= 0);
  halt_and_wait();
  {
    std::lock_guard lock(mutex_);
    first_step_ = first_step;
    batches_ = batches_from(first_step);
    taken_ = 0;
    produced_.store(0);
    released_.store(0);
    halt_.store(false);
    error_ = nullptr;
    parked_ = false;
    next_row_ = 0;
    failed_row_ = -1;
    unfilled_.assign(unfilled_.size(), rows_);
  }
  producer_wakes_.notify_all();
}

void Loader::halt_and_wait() {
  std::unique_lock lock(mutex_);
  halt_.store(true);
  producer_wakes_.notify_all();
  consumer_wakes_.wait(lock, [this] { return is_parked(); });
}

// The producer's side, if it is a single thread.

void Loader::run() {
  for (;;) {
    std::exception_ptr error;
    try {
      fill_ring();
    } catch (...) {
      error = std::current_exception();
    }
    std::unique_lock lock(mutex_);
    error_ = std::move(error);
    parked_ = true;
    consumer_wakes_.notify_one();
    producer_wakes_.wait(lock, [this] { return quit_ || !parked_; });
    if (quit_) return;
  }
}

void Loader::fill_ring() {
  EpochOrder order = make_order();
  for (int64_t batch = 0; batches_ < 0 || batch < batches_; ++batch) {
    if (!wait_for_space()) return;
    const int64_t slot = batch % options_.ring_batches;
    fill_rows(order, first_step_ + batch, slot, 0, rows_);
    set_valid_samples(first_step_ + batch, slot);
    announce_batch();
  }
}

bool Loader::wait_for_space() {
  const int64_t produced = produced_.load(std::memory_order_relaxed);
  if (produced - released_.load() < options_.ring_batches) return !halt_.load();
  std::unique_lock lock(mutex_);
  producer_asleep_.store(true);
  producer_wakes_.wait(lock,
                       [&] { return halt_.load() || produced - released_.load() <= refill_at_; });
  producer_asleep_.store(false);
  return !halt_.load();
}

void Loader::announce_batch() {
  produced_.store(produced_.load(std::memory_order_relaxed) + 1);
  if (!consumer_asleep_.load()) return;
  { std::lock_guard lock(mutex_); }
  consumer_wakes_.notify_one();
}

// Positions are computed by one division for the first row. From there they advance by 1 for each
// row, and between lanes by the samples of the lanes that other ranks fill.
void Loader::fill_rows(EpochOrder& order, int64_t step, int64_t slot, int64_t begin, int64_t end) {
  const BatchGeometry& geometry = options_.geometry;
  const int64_t skipped = (geometry.lane_stride - 1) * geometry.lane_batch;  // after each lane
  const int64_t first = step * geometry.global_batch() + geometry.first_lane * geometry.lane_batch +
                        begin + begin / geometry.lane_batch * skipped;
  SampleKey key{.index = 0, .epoch = 0, .augment = options_.training};
  int64_t position = first;
  int64_t left = samples_ - first;  // in evaluation: samples up to the end
  if (options_.training) {
    key.epoch = first / samples_;
    position = first % samples_;
    left = std::numeric_limits<int64_t>::max() / 2;
  }
  const size_t input_bytes = dataset_.input().bytes();
  const size_t target_bytes = dataset_.target().bytes();
  const size_t inputs_bytes = aligned(geometry.lane_batch * input_bytes);
  const size_t lane_bytes = inputs_bytes + aligned(geometry.lane_batch * target_bytes);
  int64_t lane = begin / geometry.lane_batch, row = begin % geometry.lane_batch;
  for (int64_t i = begin; i < end; ++lane, row = 0) {
    std::byte* inputs = memory_ + (slot * geometry.local_lanes + lane) * lane_bytes;
    std::byte* input = inputs + row * input_bytes;
    std::byte* target = inputs + inputs_bytes + row * target_bytes;
    const int64_t rows = std::min(geometry.lane_batch - row, end - i);
    const int64_t valid = std::clamp<int64_t>(left, 0, rows);
    for (int64_t r = 0; r < valid; ++r, ++position) {
      while (position >= samples_) {
        position -= samples_;
        ++key.epoch;
      }
      key.index = order.at(key.epoch, position);
      dataset_.read(key, input, target);
      input += input_bytes;
      target += target_bytes;
    }
    const auto padding = static_cast<size_t>(rows - valid);
    if (padding > 0) {
      std::memset(input, 0, padding * input_bytes);
      std::memset(target, 0, padding * target_bytes);
    }
    left -= rows + skipped;
    position += skipped;
    i += rows;
  }
}

void Loader::set_valid_samples(int64_t step, int64_t slot) {
  const BatchGeometry& geometry = options_.geometry;
  const int64_t first = step * geometry.global_batch() + geometry.first_lane * geometry.lane_batch;
  for (int lane = 0; lane < geometry.local_lanes; ++lane)
    lanes_[slot * geometry.local_lanes + lane].valid_samples =
        options_.training
            ? geometry.lane_batch
            : std::clamp<int64_t>(
                  samples_ - first - lane * geometry.lane_stride * geometry.lane_batch,
                  0,
                  geometry.lane_batch);
}

}  // namespace lockstep::data
