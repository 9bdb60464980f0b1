#include "collectives/reduce/reducer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/base/bit_sum.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"

namespace lockstep {
namespace {

constexpr int kMaxRanks = 4096;

// And what the lanes of a step say to each other meanwhile.
static_assert(kMostExchangesInFlight + kMostGathersInFlight < Communicator::kMaxPending);

size_t bytes_of(const Range& range) { return static_cast<size_t>(range.size()) * sizeof(float); }

}  // namespace

Reducer::Reducer(const RankCommunicators& communicators,
                 SliceMath& math,
                 ReducerOptions options,
                 float* gradients,
                 float* staging)
    : communicator_(communicators.slices),
      control_(communicators.control),
      node_(communicators.node),
      math_(math),
      waits_(communicators.slices, communicators.node),
      options_(std::move(options)),
      gradients_(gradients),
      sums_(options_.sums.data != nullptr ? options_.sums : OwnedFloats{gradients}),
      across_first_(sums_.packed && !options_.lanes_together),
      staging_(staging),
      elements_(options_.buckets.back().end),
      gradient_elements_(options_.bucket_offsets.empty() ? elements_ : options_.gradient_elements),
      lanes_(local_lanes(options_.lanes, control_.size(), control_.rank(), across_first_)),
      counted_(options_.compressed != nullptr ? options_.compressed->group_lanes() : lanes_.count),
      part_(options_.topology.part_of(control_.rank())),
      groups_(options_.topology.groups_of(control_.rank())),
      ring_(options_.exchanged_elements, kMostExchangesInFlight) {
  const int ranks = control_.size();
  LOCKSTEP_CHECK(options_.topology.ranks() == ranks);
  LOCKSTEP_CHECK(options_.topology.shares_memory == (node_ != nullptr));
  LOCKSTEP_CHECK(!options_.fast_order || (groups_.size() <= 1 && node_ == nullptr));
  LOCKSTEP_CHECK(lanes_.count * ranks == options_.lanes && ranks <= kMaxRanks);
  LOCKSTEP_CHECK(sums_.data == gradients_ || ranks > 1);
  LOCKSTEP_CHECK(options_.bucket_gaps.size() == options_.bucket_offsets.size());
  LOCKSTEP_CHECK(!sums_.packed || across_first_ || lanes_.count == 1);
  LOCKSTEP_CHECK(!options_.sums_everywhere ||
                 (node_ != nullptr && groups_.size() == 1 && sums_.data == gradients_ &&
                  options_.bucket_offsets.empty()));
  LOCKSTEP_CHECK(options_.wire == DType::kF32 || !options_.fast_order);
  LOCKSTEP_CHECK(options_.compressed == nullptr ||
                 (options_.bucket_offsets.empty() && sums_.data == gradients_));
  if (options_.residuals != nullptr) {
    LOCKSTEP_CHECK(options_.wire == DType::kBF16 && !across_first_ && !sums_.packed);
    residuals_.emplace(
        options_.lanes, options_.residual_groups, options_.topology, control_.rank(), elements_);
  }
  LOCKSTEP_CHECK(communicator_.size() == ranks && communicator_.rank() == control_.rank());
  LOCKSTEP_CHECK(std::has_single_bit(static_cast<unsigned>(options_.lanes)));
  squares_ = math_.host_array<ExactSum>(1).data();
  if (!options_.tensor_begins.empty()) cut_own_parts();
  exchange_.resize(static_cast<size_t>(ranks) *
                   (sizeof(Report) + static_cast<size_t>(lanes_.count) * sizeof(LaneStatistics)));
  last_exchange_.resize(options_.buckets.size());
  last_reading_.resize(options_.buckets.size());
}

void Reducer::cut_own_parts() {
  size_t pieces = 0;
  for (size_t b = 0; b < options_.buckets.size(); ++b) {
    first_piece_.push_back(pieces);
    own_pieces_.push_back(cut_range(own_part(static_cast<int>(b)), options_.tensor_begins));
    pieces += own_pieces_.back().size();
  }
  bit_sums_ = math_.host_array<uint32_t>(pieces);
}

void Reducer::begin_step(TransferSums* transfers) {
  transfers_ = transfers;
  lane_ = 0;
  ring_.clear();
  waits_.clear();
  *squares_ = {};
  std::ranges::fill(bit_sums_, 0u);
}

void Reducer::bucket_begins(int bucket) {
  uint64_t last = 0;  // exchange of what lay there
  size_t last_bucket = 0;
  for (size_t other = 0; other < last_exchange_.size(); ++other) {
    if (last_exchange_[other] <= last || !overlap(bucket, static_cast<int>(other))) continue;
    last = last_exchange_[other];
    last_bucket = other;
  }
  while (exchanges_ - in_flight() < last) complete_oldest();
  if (node_ != nullptr && last > 0)
    waits_.wait(last_reading_[last_bucket], Wait::kExchange, static_cast<int>(last_bucket));
  for (const Range& gap : options_.bucket_gaps[static_cast<size_t>(bucket)])
    math_.fill_zeros(gradient_at(lane_gradients(), bucket, gap.begin), gap.size());
}

void Reducer::bucket_ready(int bucket) {
  if (!across_first_) {
    merge_lanes(bucket);
    if (options_.compressed != nullptr) return add_to_compressed(bucket);
    if (lane_ + 1 < lanes_.count) return;
  }
  if (communicator_.size() == 1) {
    measure_sums(bucket);
  } else {
    start_exchange(bucket);
  }
}

// Adds what this lane completes to the partial sums before it.
void Reducer::merge_lanes(int bucket) {
  const Range& range = bucket_range(bucket);
  float* const first = gradient_at(gradients_, bucket, range.begin);
  round_lane(bucket, lane_, first + depth_of(lane_) * gradient_elements_, range.size());
  if (!options_.lanes_together)
    return count(bucket, first, gradient_elements_, lane_, range.size());
  if (lane_ + 1 < lanes_.count) return;
  for (int stride = 1; stride < counted_; stride *= 2) {
    for (int lane = 0; lane < lanes_.count; lane += 2 * stride)
      merge(bucket,
            {lane, 2 * stride},
            first + lane * gradient_elements_,
            first + (lane + stride) * gradient_elements_,
            range.size());
  }
}

// A binary counter of sums, each `stride` floats after the one before: that of this lane is there.
void Reducer::count(int bucket, float* sums, int64_t stride, int lane, int64_t n) {
  const int top = depth_of(lane);
  const int merges = std::countr_one(static_cast<unsigned>(lane % counted_));
  for (int merged = 1; merged <= merges; ++merged) {
    float* const from = sums + (top + 1 - merged) * stride;
    merge(bucket, {lane + 1 - (1 << merged), 1 << merged}, from - stride, from, n);
  }
}

// Makes a sum of the rank's own lanes, of two halves.
void Reducer::merge(int bucket, const LaneSum& local, float* into, const float* from, int64_t n) {
  const void* both[2] = {into, from};
  TreeSumTerms terms = {.arrays = both, .count = 2, .wire = wire_of(bucket)};
  // Of all lanes, where this rank has them all or has summed each across the ranks.
  terms.round_sum = local.count == lanes_.count && (across_first_ || communicator_.size() == 1);
  if (keeps_residuals(bucket)) {
    terms.residuals = residuals_->of_lanes(options_.residuals, local, bucket_range(bucket).begin);
    if (!terms.residuals) terms.wire = DType::kF32;
  }
  math_.tree_sum(terms, into, n);
}

// The groups that this lane completes.
void Reducer::add_to_compressed(int bucket) {
  if ((lane_ + 1) % counted_ != 0) return;
  const Range& range = bucket_range(bucket);
  const float* const sums = gradient_at(gradients_, bucket, range.begin);
  if (!options_.lanes_together) return options_.compressed->add(lane_ / counted_, range, sums);
  if (lane_ + 1 < lanes_.count) return;
  for (int lane = 0; lane < lanes_.count; lane += counted_)
    options_.compressed->add(lane / counted_, range, sums + lane * gradient_elements_);
}

// What a lane has computed, where it is a group by itself.
void Reducer::round_lane(int bucket, int lane, float* gradients, int64_t n) {
  if (!keeps_residuals(bucket)) return;
  const ErrorFeedbackResiduals residuals =
      residuals_->of_lanes(options_.residuals, {lane, 1}, bucket_range(bucket).begin);
  if (!residuals) return;
  const void* const only = gradients;
  math_.tree_sum({.arrays = &only, .wire = wire_of(bucket), .residuals = residuals}, gradients, n);
}

DType Reducer::wire_of(int bucket) const {
  return static_cast<size_t>(bucket) < options_.gradient_buckets ? options_.wire : DType::kF32;
}

float* Reducer::gradient_at(float* buffer, int bucket, int64_t flat) const {
  if (options_.bucket_offsets.empty()) return buffer + flat;
  return buffer + bucket_offset(bucket) + flat - bucket_range(bucket).begin;
}

// Whether two buckets have memory in common.
bool Reducer::overlap(int bucket, int other) const {
  const int64_t begin = bucket_offset(bucket), other_begin = bucket_offset(other);
  return begin < other_begin + bucket_range(other).size() &&
         other_begin < begin + bucket_range(bucket).size();
}

// This rank's part of a bucket, and where its sum over all ranks goes.
Range Reducer::own_part(int bucket) const {
  return part_of(bucket_range(bucket), part_, communicator_.size());
}

float* Reducer::own_sums(int bucket, int lane) const {
  const int64_t ranks = communicator_.size();
  float* const first = sums_.at(own_part(bucket).begin, bucket_range(bucket).begin / ranks);
  return across_first_ ? first + depth_of(lane) * (elements_ / ranks) : first;
}

void Reducer::gather_lanes(std::byte* all, size_t bytes) {
  if (communicator_.size() == 1) return;
  LOCKSTEP_CHECK(lanes_.stride == 1);
  waits_.timed(Wait::kLanes, -1, [&] {
    communicator_.all_gather(all, bytes * static_cast<size_t>(lanes_.count));
  });
}

void Reducer::start_exchange(int bucket) {
  const Range& range = bucket_range(bucket);
  std::optional<int64_t> place = ring_.take(range.size());
  for (; !place; place = ring_.take(range.size())) complete_oldest();
  // Those under way are a bucket's time further: what they wait for should be there.
  const uint64_t number = exchanges_++;
  for (uint64_t i = number + 1 - in_flight(); i < number; ++i) {
    Exchange& earlier = exchange_of(i);
    if (earlier.level + 1 == groups_.size()) continue;
    sum_level(earlier);
    ++earlier.level;
    start_level(earlier);
  }
  float* const staging = staging_ + staging_elements(*place, options_.topology);
  exchange_of(number) = {bucket, lane_, range, reinterpret_cast<std::byte*>(staging)};
  last_exchange_[static_cast<size_t>(bucket)] = exchanges_;
  start_level(exchange_of(number));
}

void Reducer::start_level(Exchange& exchange) {
  if (waits_.observer() != nullptr) exchange.start_ms = now_ms();
  const float* const sums = gradient_at(gradients_, exchange.bucket, exchange.range.begin);
  const auto offer = [&](const std::byte* from, DType dtype) {
    if (transfers_ != nullptr) transfers_->offer(exchange.bucket, exchange.level, from, dtype);
  };
  if (in_memory(exchange.level)) {
    offer(reinterpret_cast<const std::byte*>(sums), DType::kF32);
    exchange.arrival = waits_.signal(NodeMemory::Event::kGradients, bytes_of(exchange.range));
    return;
  }
  FlightRecorder::here().about_bucket(exchange.bucket);
  const RankGroup& group = groups_[exchange.level];
  const int64_t n = exchange.range.size(), part = n / group.count;
  if (options_.fast_order) {
    exchange.received = exchange.staging;
    exchange.arrival.handle =
        communicator_.start_reduce_scatter(sums, reinterpret_cast<float*>(exchange.received), part);
    return;
  }
  const DType wire = wire_of(exchange.bucket);
  const size_t bytes = size_of(wire);
  if (wire != DType::kF32) {  // what is sent and what comes share the staging
    math_.pack(sums, wire, exchange.staging, n);
    exchange.sent = exchange.staging;
    exchange.received = exchange.staging + static_cast<size_t>(n) * bytes;
  } else {
    exchange.sent = reinterpret_cast<const std::byte*>(sums);
    exchange.received = exchange.staging;
  }
  offer(exchange.sent, wire);
  exchange.arrival.handle = communicator_.start_exchange(
      exchange.sent, exchange.received, static_cast<size_t>(part) * bytes, group);
}

// What the group has of `mine`, in the order of its ranks, in `arrays`.
TreeSumTerms Reducer::terms_of(const Exchange& exchange,
                               const Range& mine,
                               const void** arrays) const {
  if (options_.fast_order) {
    arrays[0] = exchange.received;  // summed
    return {.arrays = arrays};
  }
  const RankGroup& group = groups_[exchange.level];
  const DType wire = wire_of(exchange.bucket);
  TreeSumTerms terms = {.arrays = arrays, .count = group.count, .wire = wire};
  if (in_memory(exchange.level)) {
    for (int i = 0; i < group.count; ++i)
      arrays[i] =
          gradient_at(reinterpret_cast<float*>(node_->piece(i)), exchange.bucket, mine.begin);
    return terms;
  }
  const int me = group.index_of(communicator_.rank());
  const size_t part_bytes = static_cast<size_t>(mine.size()) * size_of(wire);
  for (int i = 0; i < group.count; ++i)
    arrays[i] = (i == me ? exchange.sent : exchange.received) + static_cast<size_t>(i) * part_bytes;
  terms.travelled = wire != DType::kF32;
  return terms;
}

// Where the others of the node want the sum of `mine`, in `copies`. Returns how many they are.
int Reducer::copies_of(const Exchange& exchange, const Range& mine, float** copies) const {
  if (!options_.sums_everywhere) return 0;
  int count = 0;
  for (int i = 0; i < node_->count(); ++i) {
    if (i == node_->index()) continue;
    copies[count++] =
        gradient_at(reinterpret_cast<float*>(node_->piece(i)), exchange.bucket, mine.begin);
  }
  return count;
}

// Leaves the sum over the group in this rank's part of the range, which becomes the range.
void Reducer::sum_level(Exchange& exchange) {
  const double end_ms = waits_.wait(exchange.arrival, Wait::kExchange, exchange.bucket);
  const bool in_place = in_memory(exchange.level);
  if (ExchangeObserver* observer = waits_.observer()) {
    const size_t value_bytes = in_place ? sizeof(float) : size_of(wire_of(exchange.bucket));
    observer->exchanged(exchange.bucket,
                        static_cast<size_t>(exchange.range.size()) * value_bytes,
                        exchange.level,
                        exchange.start_ms,
                        end_ms);
  }
  const RankGroup& group = groups_[exchange.level];
  const Range mine = part_of(exchange.range, group.index_of(communicator_.rank()), group.count);
  const bool last = exchange.level + 1 == groups_.size();
  float* const to = last ? own_sums(exchange.bucket, exchange.lane)
                         : gradient_at(gradients_, exchange.bucket, mine.begin);
  std::array<const void*, kMaxRanks> arrays;
  std::array<float*, kMaxRanks> copies;
  TreeSumTerms terms = terms_of(exchange, mine, arrays.data());
  if (transfers_ != nullptr)
    transfers_->take(
        exchange.bucket, exchange.level, arrays.data(), in_place ? DType::kF32 : terms.wire);
  terms.round_sum = last && (!across_first_ || lanes_.count == 1);
  if (keeps_residuals(exchange.bucket))
    terms.residuals = residuals_->of_level(
        options_.residuals, exchange.level, bucket_range(exchange.bucket).begin);
  terms.copies = copies.data();
  terms.copy_count = copies_of(exchange, mine, copies.data());
  math_.tree_sum(terms, to, mine.size());
  // Sums that are written to others are waited for all at once.
  const size_t bucket = static_cast<size_t>(exchange.bucket);
  if (in_place && (options_.sums_everywhere ? bucket + 1 == options_.buckets.size()
                                            : !options_.bucket_offsets.empty()))
    last_reading_[bucket] = waits_.signal(NodeMemory::Event::kGradientsRead, bytes_of(mine));
  exchange.range = mine;
}

void Reducer::complete_oldest() {
  Exchange& exchange = exchange_of(exchanges_ - in_flight());
  sum_level(exchange);
  while (++exchange.level < groups_.size()) {
    start_level(exchange);
    sum_level(exchange);
  }
  if (across_first_) {
    count(exchange.bucket,
          own_sums(exchange.bucket, 0),
          elements_ / communicator_.size(),
          exchange.lane,
          exchange.range.size());
  }
  if (!across_first_ || exchange.lane + 1 == lanes_.count) measure_sums(exchange.bucket);
  ring_.give_back();
}

// Right after a bucket is summed and still in cache.
void Reducer::measure_sums(int bucket) {
  const float* const sums = own_sums(bucket, 0);
  const Range mine = own_part(bucket);
  const bool squared = options_.norm && static_cast<size_t>(bucket) < options_.gradient_buckets;
  if (bit_sums_.empty()) {
    if (squared) math_.add_squares(sums, mine.size(), squares_);
    return;
  }
  uint32_t* bits = &bit_sums_[first_piece_[static_cast<size_t>(bucket)]];
  for (const Range& piece : own_pieces_[static_cast<size_t>(bucket)]) {
    const float* const x = sums + piece.begin - mine.begin;
    if (squared) {
      math_.add_squares(x, piece.size(), squares_, bits);
    } else {
      math_.add_bits(reinterpret_cast<const std::byte*>(x), DType::kF32, piece.size(), bits);
    }
    ++bits;
  }
}

void Reducer::reduce() {
  while (in_flight() > 0) complete_oldest();
  LOCKSTEP_CHECK(lane_ == lanes_.count);
  if (options_.sums_everywhere)  // the others' parts
    waits_.wait(last_reading_.back(), Wait::kExchange, static_cast<int>(last_reading_.size()) - 1);
  if (options_.compressed == nullptr) return;
  options_.compressed->finish(gradients_);
  for (size_t b = 0; b < options_.buckets.size(); ++b) measure_sums(static_cast<int>(b));
}

StepTotals Reducer::totals(std::span<const LaneStatistics> local, const Tidings& tidings) {
  math_.synchronize();
  return exchange_totals(local, tidings);
}

StepTotals Reducer::exchange_totals(std::span<const LaneStatistics> local, const Tidings& tidings) {
  LOCKSTEP_CHECK(local.size() == static_cast<size_t>(lanes_.count));
  const size_t ranks = static_cast<size_t>(communicator_.size()), lanes = local.size();
  const size_t part = exchange_.size() / ranks;
  const auto part_of_rank = [&](size_t r) { return exchange_.data() + r * part; };
  const Report mine = {tidings, *squares_};
  std::byte* const to = part_of_rank(static_cast<size_t>(communicator_.rank()));
  std::memcpy(to, &mine, sizeof(mine));
  std::memcpy(to + sizeof(mine), local.data(), local.size_bytes());
  if (ranks > 1)
    waits_.timed(Wait::kTotals, -1, [&] { control_.all_gather(exchange_.data(), part); });

  StepTotals totals;
  totals.digest = tidings.digest;
  ExactSum squares;
  for (size_t r = 0; r < ranks; ++r) {
    Report report;
    std::memcpy(&report, part_of_rank(r), sizeof(report));
    const auto& [flags, digest, busy_ms] = report.tidings;
    totals.flags |= flags;
    totals.digest_sum = r == 0 ? digest : add_halves(totals.digest_sum, digest);
    totals.digests_differ = totals.digests_differ || digest != tidings.digest;
    squares += report.squares;
    if (r == 0 || busy_ms > totals.slowest_ms) {
      totals.slowest_ms = busy_ms;
      totals.slowest_rank = static_cast<int>(r);
    }
    totals.fastest_ms = r == 0 ? busy_ms : std::min(totals.fastest_ms, busy_ms);
  }
  totals.squared_norm = squares.value();
  // Lanes in order: the same sums on any number of ranks.
  for (size_t lane = 0; lane < lanes * ranks; ++lane) {
    const auto [r, place] = lanes_.stride == 1 ? std::pair(lane / lanes, lane % lanes)
                                               : std::pair(lane % ranks, lane / ranks);
    LaneStatistics statistics;
    std::memcpy(&statistics,
                part_of_rank(r) + sizeof(Report) + place * sizeof(statistics),
                sizeof(statistics));
    totals.loss_sum += statistics.values[0];
    totals.valid_count += statistics.values[1];
    totals.correct_count += statistics.values[2];
    totals.top5_count += statistics.values[3];
  }
  return totals;
}

}  // namespace lockstep
