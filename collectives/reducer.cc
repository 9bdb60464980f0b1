#include "collectives/reducer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {

constexpr int kMaxRanks = 4096;

}  // namespace

Reducer::Reducer(ReducerCommunicators communicators,
                 SliceMath& math,
                 ReducerOptions options,
                 float* gradients,
                 float* staging)
    : communicator_(communicators.slices),
      control_(communicators.control),
      math_(math),
      options_(std::move(options)),
      gradients_(gradients),
      staging_(staging),
      elements_(options_.buckets.back().end),
      staging_bucket_elements_(largest_bucket(options_.buckets)),
      local_lanes_(options_.lanes / control_.size()) {
  const int ranks = control_.size();
  LOCKSTEP_CHECK(local_lanes_ * ranks == options_.lanes && ranks <= kMaxRanks);
  LOCKSTEP_CHECK(communicator_.size() == ranks && communicator_.rank() == control_.rank());
  LOCKSTEP_CHECK(std::has_single_bit(static_cast<unsigned>(options_.lanes)));
  norms_ = math_.host_array<double>(options_.buckets.size() * static_cast<size_t>(local_lanes_));
  const size_t part = 1 + static_cast<size_t>(local_lanes_) * 4 + norms_.size();
  exchange_.resize(part * static_cast<size_t>(ranks));
  gather_place_.resize(options_.buckets.size());
  LOCKSTEP_CHECK(options_.gather_order.size() == options_.buckets.size());
  for (size_t i = 0; i < gather_place_.size(); ++i)
    gather_place_[static_cast<size_t>(options_.gather_order[i])] = i;
  gather_.started = gather_.done = gather_place_.size();
}

void Reducer::begin_step() {
  lane_ = 0;
  in_flight_count_ = 0;
  exposed_ms_ = 0;
}

void Reducer::bucket_ready(int bucket) {
  const Range range = options_.buckets[static_cast<size_t>(bucket)];
  const int top = depth_of(lane_);
  const int merges = std::countr_one(static_cast<unsigned>(lane_));
  for (int level = top; level > top - merges; --level) {
    const float* sources[2] = {buffer(level - 1) + range.begin, buffer(level) + range.begin};
    math_.tree_sum(sources, 2, buffer(level - 1) + range.begin, range.size());
  }
  if (lane_ + 1 < local_lanes_) return;
  if (communicator_.size() == 1) {
    measure_norm(bucket);
  } else {
    start_exchange(bucket);
  }
}

void Reducer::start_exchange(int bucket) {
  if (in_flight_count_ == kInFlight) complete_oldest();
  const Range range = options_.buckets[static_cast<size_t>(bucket)];
  const int64_t part = range.size() / communicator_.size();
  const float* send = gradients_ + range.begin;
  float* receive = staging(next_slot_);
  const int handle = options_.fast_order
                         ? communicator_.start_reduce_scatter(send, receive, part)
                         : communicator_.start_exchange(reinterpret_cast<const std::byte*>(send),
                                                        reinterpret_cast<std::byte*>(receive),
                                                        static_cast<size_t>(part) * sizeof(float));
  in_flight_[in_flight_count_++] = {bucket, handle};
  next_slot_ = (next_slot_ + 1) % kInFlight;
}

void Reducer::complete_oldest() {
  const Exchange exchange = in_flight_[0];
  const float* received = staging((next_slot_ + kInFlight - in_flight_count_) % kInFlight);
  std::move(in_flight_ + 1, in_flight_ + in_flight_count_, in_flight_);
  --in_flight_count_;
  timed_wait(exchange.handle);

  const Range bucket = options_.buckets[static_cast<size_t>(exchange.bucket)];
  const int ranks = communicator_.size(), me = communicator_.rank();
  const Range mine = owned_part(bucket, me, ranks);
  std::array<const float*, kMaxRanks> sources;
  int count = 1;
  sources[0] = received;
  if (!options_.fast_order) {
    count = ranks;
    for (int r = 0; r < ranks; ++r) sources[static_cast<size_t>(r)] = received + r * mine.size();
    sources[static_cast<size_t>(me)] = gradients_ + mine.begin;
  }
  math_.tree_sum(sources.data(), count, gradients_ + mine.begin, mine.size());
  measure_norm(exchange.bucket);
}

// The norm is taken slice by slice, right after a bucket is summed and still in cache. The slices
// of a rank follow each other.
void Reducer::measure_norm(int bucket) {
  if (static_cast<size_t>(bucket) >= options_.gradient_buckets) return;  // their norms stay zero
  const Range first =
      slice_of(options_.buckets[static_cast<size_t>(bucket)], first_lane(), options_.lanes);
  double* const norms =
      norms_.data() + static_cast<size_t>(bucket) * static_cast<size_t>(local_lanes_);
  math_.sums_of_squares(gradients_ + first.begin, first.size(), local_lanes_, norms);
}

void Reducer::reduce() {
  while (in_flight_count_ > 0) complete_oldest();
  LOCKSTEP_CHECK(lane_ == local_lanes_);
}

StepTotals Reducer::totals(std::span<const LaneStatistics> local, int64_t flags) {
  math_.synchronize();
  return sum_statistics(local, flags);
}

StepTotals Reducer::sum_statistics(std::span<const LaneStatistics> local, int64_t flags) {
  LOCKSTEP_CHECK(local.size() == static_cast<size_t>(local_lanes_));
  const size_t ranks = static_cast<size_t>(communicator_.size()), lanes = local.size(),
               buckets = options_.buckets.size();
  const size_t part = exchange_.size() / ranks;
  double* mine = exchange_.data() + static_cast<size_t>(communicator_.rank()) * part;
  *mine++ = static_cast<double>(flags);
  for (const LaneStatistics& lane : local)
    mine = std::copy(std::begin(lane.values), std::end(lane.values), mine);
  std::copy(norms_.begin(), norms_.end(), mine);
  if (ranks > 1) {
    const double start = now_ms();
    control_.all_gather(reinterpret_cast<std::byte*>(exchange_.data()), part * sizeof(double));
    exposed_ms_ += now_ms() - start;
  }

  // Lanes in order, then buckets in order and the slices of each in order: the same sums on any
  // number of ranks.
  StepTotals totals;
  for (size_t r = 0; r < ranks; ++r) {
    const double* from = exchange_.data() + r * part;
    totals.flags |= static_cast<int64_t>(from[0]);
    for (size_t lane = 0; lane < lanes; ++lane) {
      totals.loss_sum += from[1 + lane * 4];
      totals.valid_count += from[1 + lane * 4 + 1];
      totals.correct_count += from[1 + lane * 4 + 2];
    }
  }
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    for (size_t r = 0; r < ranks; ++r) {
      const double* norms = exchange_.data() + r * part + 1 + lanes * 4 + bucket * lanes;
      for (size_t slice = 0; slice < lanes; ++slice) totals.squared_norm += norms[slice];
    }
  }
  return totals;
}

void Reducer::start_gather(std::byte* parameters, size_t element_bytes) {
  if (communicator_.size() == 1) return;
  gather_.parameters = parameters;
  gather_.element_bytes = element_bytes;
  gather_.started = gather_.done = 0;
  advance_gather();
}

// Keeps as many buckets under way as may be.
void Reducer::advance_gather() {
  while (gather_.started < gather_place_.size() &&
         gather_.started < gather_.done + Communicator::kMaxPending) {
    const int number = options_.gather_order[gather_.started];
    const Range& bucket = options_.buckets[static_cast<size_t>(number)];
    std::byte* const at =
        gather_.parameters + static_cast<size_t>(bucket.begin) * gather_.element_bytes;
    const auto part = static_cast<size_t>(bucket.size() / communicator_.size());
    gather_.handles[gather_.started++ % Communicator::kMaxPending] =
        communicator_.start_all_gather(at, part * gather_.element_bytes);
  }
}

void Reducer::bucket_needed(int bucket) {
  const size_t place = gather_place_[static_cast<size_t>(bucket)];
  while (gather_.done <= place) {
    timed_wait(gather_.handles[gather_.done++ % Communicator::kMaxPending]);
    advance_gather();
  }
}

void Reducer::finish_gather() {
  if (!options_.gather_order.empty()) bucket_needed(options_.gather_order.back());
}

void Reducer::timed_wait(int handle) {
  const double start = now_ms();
  communicator_.wait(handle);
  exposed_ms_ += now_ms() - start;
}

}  // namespace lockstep
