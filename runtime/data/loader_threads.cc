// The loader's producer if it has several threads.

#include <algorithm>
#include <utility>

#include "runtime/data/loader.h"

namespace lockstep::data {

// The rows of all batches form one sequence. Each thread claims the next few rows, if the ring has
// room for them, and reads them without the mutex. The thread that fills the last row of the oldest
// unfinished batch publishes that batch, and any finished ones behind it. So nobody waits for the
// slowest image of a batch: the other threads continue with the next batch. A row's number alone
// determines where it is stored and what is read into it, so the batches do not depend on the
// number of threads.
//
// Rows are claimed in order. So if reading a row fails, every row before it has been claimed and
// will be filled: all batches before the failed one are complete.

namespace {

// Rows per claim, if a row is too cheap to take the mutex for each.
constexpr int64_t kCheapRows = 32;

}  // namespace

bool Loader::can_claim() const {
  if (halt_.load() || error_ != nullptr) return false;
  const int64_t batch = next_row_ / rows_;
  return (batches_ < 0 || batch < batches_) && batch - released_.load() < options_.ring_batches;
}

bool Loader::is_parked() const {
  if (options_.threads == 1) return parked_;
  const bool all_claimed = batches_ >= 0 && next_row_ == batches_ * rows_;
  return working_ == 0 && (halt_.load() || error_ != nullptr || all_claimed);
}

void Loader::run_one_of_many() {
  EpochOrder order = make_order();
  const int64_t at_a_time = dataset_.is_expensive() ? 1 : kCheapRows;
  std::unique_lock lock(mutex_);
  while (!quit_) {
    if (!can_claim()) {
      if (--working_ == 0) consumer_wakes_.notify_one();
      producer_wakes_.wait(lock, [this] { return quit_ || can_claim(); });
      ++working_;
      continue;
    }
    const int64_t batch = next_row_ / rows_, begin = next_row_ % rows_;
    const int64_t end = std::min(begin + at_a_time, rows_);
    next_row_ += end - begin;
    std::exception_ptr error;
    lock.unlock();
    try {
      fill_rows(order, first_step_ + batch, batch % options_.ring_batches, begin, end);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    if (error == nullptr) {
      finish_rows(batch, end - begin);
    } else if (error_ == nullptr || batch * rows_ + begin < failed_row_) {
      error_ = std::move(error);
      failed_row_ = batch * rows_ + begin;
    }
  }
}

void Loader::finish_rows(int64_t batch, int64_t rows) {
  const auto slot_of = [this](int64_t b) { return static_cast<size_t>(b % options_.ring_batches); };
  unfilled_[slot_of(batch)] -= rows;
  int64_t produced = produced_.load(std::memory_order_relaxed);
  if (batch != produced || unfilled_[slot_of(batch)] > 0) return;
  for (; unfilled_[slot_of(produced)] == 0; ++produced) {
    unfilled_[slot_of(produced)] = rows_;
    set_valid_samples(first_step_ + produced, static_cast<int64_t>(slot_of(produced)));
  }
  produced_.store(produced);
  consumer_wakes_.notify_one();
}

}  // namespace lockstep::data
