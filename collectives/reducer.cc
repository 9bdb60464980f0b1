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
constexpr size_t kTotalsHeader = 2;  // of a rank's part of the exchange: flags, busy_ms

}  // namespace

Reducer::Reducer(ReducerCommunicators communicators,
                 SliceMath& math,
                 ReducerOptions options,
                 float* gradients,
                 float* staging)
    : communicator_(communicators.slices),
      control_(communicators.control),
      node_(communicators.node),
      math_(math),
      options_(std::move(options)),
      gradients_(gradients),
      sums_(options_.sums != nullptr ? options_.sums : gradients),
      staging_(staging),
      elements_(options_.buckets.back().end),
      staging_elements_(staging_elements(options_.buckets, options_.topology)),
      local_lanes_(options_.lanes / control_.size()),
      part_(options_.topology.part_of(control_.rank())),
      groups_(options_.topology.groups_of(control_.rank())),
      steps_(options_.topology.gather_steps(control_.rank())) {
  const int ranks = control_.size();
  LOCKSTEP_CHECK(options_.topology.ranks() == ranks);
  LOCKSTEP_CHECK(options_.topology.shares_memory == (node_ != nullptr));
  LOCKSTEP_CHECK(!options_.fast_order || (groups_.size() <= 1 && node_ == nullptr));
  LOCKSTEP_CHECK(local_lanes_ * ranks == options_.lanes && ranks <= kMaxRanks);
  LOCKSTEP_CHECK(sums_ == gradients_ || ranks > 1);
  LOCKSTEP_CHECK(communicator_.size() == ranks && communicator_.rank() == control_.rank());
  LOCKSTEP_CHECK(std::has_single_bit(static_cast<unsigned>(options_.lanes)));
  norms_ = math_.host_array<double>(options_.buckets.size() * static_cast<size_t>(local_lanes_));
  const size_t part = kTotalsHeader + static_cast<size_t>(local_lanes_) * 4 + norms_.size();
  exchange_.resize(part * static_cast<size_t>(ranks));
  gather_place_.resize(options_.buckets.size());
  LOCKSTEP_CHECK(options_.gather_order.size() == options_.buckets.size());
  for (size_t i = 0; i < gather_place_.size(); ++i)
    gather_place_[static_cast<size_t>(options_.gather_order[i])] = i;
  gather_.started = gather_.done = gather_place_.size();
  // Within a node all buckets are there at once. Of the communicator's operations one is left for
  // what the lanes of a step say to each other meanwhile.
  const bool only_signals = node_ != nullptr && steps_.size() == 1;
  gather_.pending.resize(only_signals ? gather_place_.size() : Communicator::kMaxPending - 1);
}

void Reducer::begin_step() {
  lane_ = 0;
  in_flight_count_ = 0;
  exposed_ms_ = 0;
}

void Reducer::bucket_ready(int bucket) {
  merge_lanes(options_.buckets[static_cast<size_t>(bucket)]);
  if (lane_ + 1 < local_lanes_) return;
  if (communicator_.size() == 1) {
    measure_norm(bucket);
  } else {
    start_exchange(bucket);
  }
}

// Adds what this lane completes to the partial sums before it.
void Reducer::merge_lanes(const Range& range) {
  if (options_.lanes_together) {
    if (lane_ + 1 < local_lanes_) return;
    for (int stride = 1; stride < local_lanes_; stride *= 2) {
      for (int lane = 0; lane < local_lanes_; lane += 2 * stride) merge(lane, lane + stride, range);
    }
    return;
  }
  const int top = depth_of(lane_);
  const int merges = std::countr_one(static_cast<unsigned>(lane_));
  for (int level = top; level > top - merges; --level) merge(level - 1, level, range);
}

// Adds the second buffer to the first.
void Reducer::merge(int into, int from, const Range& range) {
  const float* sources[2] = {buffer(into) + range.begin, buffer(from) + range.begin};
  math_.tree_sum(sources, 2, buffer(into) + range.begin, range.size());
}

void Reducer::gather_lanes(std::byte* all, size_t bytes) {
  if (communicator_.size() == 1) return;
  const double start = now_ms();
  communicator_.all_gather(all, bytes * static_cast<size_t>(local_lanes_));
  count_wait(Wait::kLanes, -1, start);
}

void Reducer::start_exchange(int bucket) {
  if (in_flight_count_ == kInFlight) complete_oldest();
  // Those under way are a bucket's time further: what they wait for should be there.
  for (size_t i = 0; i < in_flight_count_; ++i) {
    Exchange& earlier = in_flight_[i];
    if (earlier.level + 1 == groups_.size()) continue;
    sum_level(earlier);
    ++earlier.level;
    start_level(earlier);
  }
  Exchange& exchange = in_flight_[in_flight_count_++];
  exchange = {bucket,
              options_.buckets[static_cast<size_t>(bucket)],
              staging_ + static_cast<int64_t>(next_slot_) * staging_elements_};
  next_slot_ = (next_slot_ + 1) % kInFlight;
  start_level(exchange);
}

void Reducer::start_level(Exchange& exchange) {
  if (observer_ != nullptr) exchange.start_ms = now_ms();
  if (in_memory(exchange.level)) {
    exchange.arrival = signal(NodeMemory::Event::kGradients);
    return;
  }
  const RankGroup& group = groups_[exchange.level];
  const int64_t part = exchange.range.size() / group.count;
  const float* send = gradients_ + exchange.range.begin;
  exchange.arrival.handle =
      options_.fast_order
          ? communicator_.start_reduce_scatter(send, exchange.received, part)
          : communicator_.start_exchange(reinterpret_cast<const std::byte*>(send),
                                         reinterpret_cast<std::byte*>(exchange.received),
                                         static_cast<size_t>(part) * sizeof(float),
                                         group);
}

// Leaves the sum over the group in this rank's part of the range, which becomes the range.
void Reducer::sum_level(Exchange& exchange) {
  const double end_ms = timed_wait(exchange.arrival, Wait::kExchange, exchange.bucket);
  if (observer_ != nullptr)
    observer_->exchanged(exchange.bucket,
                         static_cast<size_t>(exchange.range.size()) * sizeof(float),
                         exchange.level,
                         exchange.start_ms,
                         end_ms);
  const bool in_place = in_memory(exchange.level);
  const RankGroup& group = groups_[exchange.level];
  const int me = group.index_of(communicator_.rank());
  const Range mine = part_of(exchange.range, me, group.count);
  std::array<const float*, kMaxRanks> sources;
  int count = 1;
  sources[0] = exchange.received;
  if (!options_.fast_order) {
    count = group.count;
    for (int i = 0; i < count; ++i)
      sources[static_cast<size_t>(i)] =
          in_place ? reinterpret_cast<const float*>(node_->piece(i)) + mine.begin
                   : exchange.received + i * mine.size();
    sources[static_cast<size_t>(me)] = gradients_ + mine.begin;
  }
  float* const to = exchange.level + 1 == groups_.size() ? sums_ : gradients_;
  math_.tree_sum(sources.data(), count, to + mine.begin, mine.size());
  exchange.range = mine;
}

void Reducer::complete_oldest() {
  Exchange exchange = in_flight_[0];
  std::move(in_flight_ + 1, in_flight_ + in_flight_count_, in_flight_);
  --in_flight_count_;
  sum_level(exchange);
  while (++exchange.level < groups_.size()) {
    start_level(exchange);
    sum_level(exchange);
  }
  measure_norm(exchange.bucket);
}

// The norm is taken slice by slice, right after a bucket is summed and still in cache. The slices
// of a rank follow each other.
void Reducer::measure_norm(int bucket) {
  if (static_cast<size_t>(bucket) >= options_.gradient_buckets) return;  // their norms stay zero
  const Range first =
      part_of(options_.buckets[static_cast<size_t>(bucket)], part_ * local_lanes_, options_.lanes);
  double* const norms =
      norms_.data() + static_cast<size_t>(bucket) * static_cast<size_t>(local_lanes_);
  math_.sums_of_squares(sums_ + first.begin, first.size(), local_lanes_, norms);
}

void Reducer::reduce() {
  while (in_flight_count_ > 0) complete_oldest();
  LOCKSTEP_CHECK(lane_ == local_lanes_);
}

StepTotals Reducer::totals(std::span<const LaneStatistics> local, int64_t flags, double busy_ms) {
  math_.synchronize();
  return exchange_totals(local, flags, busy_ms);
}

StepTotals Reducer::exchange_totals(std::span<const LaneStatistics> local,
                                    int64_t flags,
                                    double busy_ms) {
  LOCKSTEP_CHECK(local.size() == static_cast<size_t>(local_lanes_));
  const size_t ranks = static_cast<size_t>(communicator_.size()), lanes = local.size(),
               buckets = options_.buckets.size();
  const size_t part = exchange_.size() / ranks;
  double* mine = exchange_.data() + static_cast<size_t>(communicator_.rank()) * part;
  *mine++ = static_cast<double>(flags);
  *mine++ = busy_ms;
  for (const LaneStatistics& lane : local)
    mine = std::copy(std::begin(lane.values), std::end(lane.values), mine);
  std::copy(norms_.begin(), norms_.end(), mine);
  if (ranks > 1) {
    const double start = now_ms();
    control_.all_gather(reinterpret_cast<std::byte*>(exchange_.data()), part * sizeof(double));
    count_wait(Wait::kTotals, -1, start);
  }

  // Lanes in order, then buckets in order and the slices of each in order: the same sums on any
  // number of ranks.
  StepTotals totals;
  for (size_t r = 0; r < ranks; ++r) {
    const double* from = exchange_.data() + r * part;
    totals.flags |= static_cast<int64_t>(from[0]);
    if (r == 0 || from[1] > totals.slowest_ms) {
      totals.slowest_ms = from[1];
      totals.slowest_rank = static_cast<int>(r);
    }
    totals.fastest_ms = r == 0 ? from[1] : std::min(totals.fastest_ms, from[1]);
    for (size_t lane = 0; lane < lanes; ++lane) {
      const double* values = from + kTotalsHeader + lane * 4;
      totals.loss_sum += values[0];
      totals.valid_count += values[1];
      totals.correct_count += values[2];
    }
  }
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    for (int p = 0; p < options_.topology.ranks(); ++p) {
      const auto r = static_cast<size_t>(options_.topology.owner_of(p));
      const double* norms =
          exchange_.data() + r * part + kTotalsHeader + lanes * 4 + bucket * lanes;
      for (size_t slice = 0; slice < lanes; ++slice) totals.squared_norm += norms[slice];
    }
  }
  return totals;
}

void Reducer::start_gather(std::byte* parameters, size_t element_bytes) {
  if (communicator_.size() == 1) return;
  LOCKSTEP_CHECK(node_ == nullptr || parameters == node_->common());
  gather_.parameters = parameters;
  gather_.element_bytes = element_bytes;
  gather_.started = gather_.done = 0;
  advance_gather();
}

// Keeps as many buckets under way as may be.
void Reducer::advance_gather() {
  while (gather_.started < gather_place_.size() &&
         gather_.started < gather_.done + gather_.pending.size()) {
    start_step(gather_.started++, 0);
  }
}

void Reducer::start_step(size_t place, size_t step) {
  Gather::Pending& pending = gather_.pending[place % gather_.pending.size()];
  pending.step = step;
  if (step == 0 && observer_ != nullptr) pending.start_ms = now_ms();
  if (node_ != nullptr && step + 1 == steps_.size()) {
    pending.arrival = signal(NodeMemory::Event::kParameters);
    return;
  }
  const int number = options_.gather_order[place];
  const Range& bucket = options_.buckets[static_cast<size_t>(number)];
  const GatherStep& gather = steps_[step];
  const int64_t part = bucket.size() / communicator_.size();
  const int64_t first = bucket.begin + gather.first_part * part;
  pending.arrival.handle = communicator_.start_all_gather(
      gather_.parameters + static_cast<size_t>(first) * gather_.element_bytes,
      static_cast<size_t>(gather.slot_parts * part) * gather_.element_bytes,
      gather.group);
}

// Waits until the first `steps` steps of a bucket are done and, if there are more, starts the next.
void Reducer::finish_steps(size_t place, size_t steps) {
  Gather::Pending& pending = gather_.pending[place % gather_.pending.size()];
  const int number = options_.gather_order[place];
  while (pending.step < steps) {
    const double end_ms = timed_wait(pending.arrival, Wait::kGather, number);
    if (++pending.step < steps_.size()) {
      start_step(place, pending.step);
    } else if (observer_ != nullptr) {
      const Range& bucket = options_.buckets[static_cast<size_t>(number)];
      observer_->gathered(number,
                          static_cast<size_t>(bucket.size()) * gather_.element_bytes,
                          pending.start_ms,
                          end_ms);
    }
  }
}

void Reducer::bucket_needed(int bucket) {
  const size_t place = gather_place_[static_cast<size_t>(bucket)];
  while (gather_.done <= place) {
    // The next bucket's last step goes on while the ops that need this one run.
    for (size_t next = gather_.done; next < std::min(gather_.done + 2, gather_.started); ++next)
      finish_steps(next, steps_.size() - 1);
    finish_steps(gather_.done++, steps_.size());
    advance_gather();
  }
}

void Reducer::finish_gather() {
  if (!options_.gather_order.empty()) bucket_needed(options_.gather_order.back());
}

// Returns when it ended.
double Reducer::timed_wait(const Arrival& arrival, Wait what, int bucket) {
  const double start_ms = now_ms();
  if (arrival.handle >= 0) {
    communicator_.wait(arrival.handle);
  } else {
    node_->wait(arrival.event, arrival.count);
  }
  return count_wait(what, bucket, start_ms);
}

// Of a wait that ends now.
double Reducer::count_wait(Wait what, int bucket, double start_ms) {
  const double end_ms = now_ms();
  exposed_ms_ += end_ms - start_ms;
  if (observer_ != nullptr) observer_->waited(what, bucket, start_ms, end_ms);
  return end_ms;
}

}  // namespace lockstep
