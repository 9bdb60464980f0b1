#include "collectives/reduce/library_exchange.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"

namespace lockstep::collectives {

LibraryExchange::LibraryExchange(GradientExchangeSetup setup, const StagingMemory& staging)
    : GradientExchange(std::move(setup)), staging_(staging), exchanges_(staging.elements) {
  LOCKSTEP_CHECK(node_ == nullptr && ranks() > 1 && (sums().packed || !each_summed()));
  if (!each_summed())
    lane_sums_.emplace(math_, gradients_, shares_, rank_, WireRounding{}, nullptr);
}

void LibraryExchange::begin_step(TransferChecksums* transfers) {
  GradientExchange::begin_step(transfers);
  exchanges_.clear();
}

float* LibraryExchange::lane_gradients() {
  return lane_sums_ ? lane_sums_->buffer_of(lane_) : gradients_.data;
}

void LibraryExchange::complete_until(uint64_t number, int /*bucket*/) {
  while (exchanges_.completed() < number) complete_oldest();
}

void LibraryExchange::bucket_ready(int bucket) {
  const Range& range = gradients_.range(bucket);
  float* const gradients = gradients_.at(gradients_.buffer(0), bucket, range.begin);
  if (lane_sums_) {
    if (!lane_sums_->add(bucket, lane_)) return;
    for (int i = 1; i < static_cast<int>(lane_sums_->sums().size()); ++i) {
      const void* both[2] = {gradients, gradients_.at(gradients_.buffer(i), bucket, range.begin)};
      math_.tree_sum({.arrays = both, .count = 2}, gradients, range.size());
    }
  } else if (lane_ >= lanes_.count) {  // a turn without a lane of this rank
    math_.fill_zeros(gradients, range.size());
  }
  std::optional<int64_t> offset = exchanges_.take(range.size());
  for (; !offset; offset = exchanges_.take(range.size())) complete_oldest();
  Exchange& exchange = exchanges_.start();
  exchange = {.bucket = bucket, .turn = lane_, .received = staging_.data + *offset};
  note_exchange(bucket, exchanges_.started());
  if (waits_.observer() != nullptr) exchange.start_ms = now_ms();
  FlightRecorder::here().set_bucket(bucket);
  exchange.arrival.handle =
      slices_.start_reduce_scatter(gradients, exchange.received, range.size() / ranks());
}

void LibraryExchange::complete_oldest() {
  const Exchange& exchange = exchanges_.oldest();
  const double end_ms = waits_.wait(exchange.arrival, Wait::kExchange, exchange.bucket);
  if (ExchangeObserver* observer = waits_.observer())
    observer->exchanged(
        exchange.bucket,
        static_cast<size_t>(gradients_.range(exchange.bucket).size()) * sizeof(float),
        0,
        exchange.start_ms,
        end_ms);
  float* const sums = own_.at(exchange.bucket);
  const bool adds = each_summed() && exchange.turn > 0;
  const void* terms[2] = {exchange.received, sums};
  math_.tree_sum({.arrays = terms, .count = adds ? 2 : 1}, sums, own_.part(exchange.bucket).size());
  if (!each_summed() || exchange.turn + 1 == turns_) own_part_summed(exchange.bucket);
  exchanges_.end_oldest();
}

void LibraryExchange::reduce() {
  while (in_flight() > 0) complete_oldest();
  GradientExchange::reduce();
}

}  // namespace lockstep::collectives
