// How a bucket is reduced, and why the bits do not depend on the number of ranks.
//
// Within a rank: a binary counter of partial sums. Lane i writes to the gradient buffer number
// popcount(i) (depth_of). Once lane i is complete, propagate_carries() merges the last two partial
// sums once for each trailing one bit of i, as carries run through a binary number:
//
//   after lane      buffer 0             buffer 1   buffer 2
//       0           0
//       1           0 + 1                                        (one merge)
//       2           0 + 1                2
//       3           (0 + 1) + (2 + 3)                            (two merges)
//
// Across ranks: a reduce-scatter by pairwise exchange, at each level of the topology. The `count`
// ranks of a group cut the exchange's range into `count` parts. Each rank sends part i to index i,
// receives its own part from all others, and adds the terms in the order of the indices as a
// balanced tree (sum_level). That part is the range of the next level. After the last level a rank
// has its part of the bucket, summed over all lanes:
//
//   lanes     0   1   2   3   4   5   6   7
//   ranks     \-0-/   \-1-/   \-2-/   \-3-/      counter of each rank: 0+1, 2+3, 4+5, 6+7
//   nodes         \-----/         \-----/        level 0: (0+1)+(2+3), (4+5)+(6+7)
//   run                 \---------/              level 1: their sum
//
// Invariant: every addition is a node of the one balanced tree over all lanes, whose two terms are
// its left and its right subtree. It holds because lanes, lanes of a rank and ranks of a node are
// powers of two and aligned, so that each counter and each group sums one complete subtree.
//
// Overlap: bucket_ready() of a rank's last lane starts the bucket's exchange while the backward
// pass continues. ring_ limits the elements in flight and assigns staging memory; exchanges
// complete in the order of their start. Whenever one starts, earlier ones move on to their next
// level, if any.
//
// What starts and completes when depends on bucket sizes and calls, never on timing: the ranks must
// start the same operations in the same order. Keep it so.
#include "collectives/reduce/reducer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include "runtime/base/bit_checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"

namespace lockstep {
namespace {

constexpr int kMaxRanks = 4096;

// Exchanges and gathers may be in flight together, and a lane's gather besides.
static_assert(kMaxExchangesInFlight + kMaxGathersInFlight < Communicator::kMaxPending);

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
      reduces_each_lane_(sums_.packed && !options_.interleaved_lanes),
      staging_(staging),
      elements_(options_.buckets.back().end),
      gradient_elements_(options_.bucket_offsets.empty() ? elements_ : options_.gradient_elements),
      lanes_(local_lanes(options_.lanes, control_.size(), control_.rank(), reduces_each_lane_)),
      lanes_per_sum_(options_.compressed != nullptr ? options_.compressed->group_lanes()
                                                    : lanes_.count),
      part_(options_.topology.part_of(control_.rank())),
      groups_(options_.topology.groups_of(control_.rank())),
      ring_(options_.exchanged_elements, kMaxExchangesInFlight) {
  const int ranks = control_.size();
  LOCKSTEP_CHECK(options_.topology.ranks() == ranks);
  LOCKSTEP_CHECK(options_.topology.shares_memory == (node_ != nullptr));
  LOCKSTEP_CHECK(!options_.fast_order || (groups_.size() <= 1 && node_ == nullptr));
  LOCKSTEP_CHECK(lanes_.count * ranks == options_.lanes && ranks <= kMaxRanks);
  LOCKSTEP_CHECK(sums_.data == gradients_ || ranks > 1);
  LOCKSTEP_CHECK(options_.bucket_gaps.size() == options_.bucket_offsets.size());
  LOCKSTEP_CHECK(!sums_.packed || reduces_each_lane_ || lanes_.count == 1);
  LOCKSTEP_CHECK(!options_.replicated_sums ||
                 (node_ != nullptr && groups_.size() == 1 && sums_.data == gradients_ &&
                  options_.bucket_offsets.empty()));
  LOCKSTEP_CHECK(options_.wire == DType::kF32 || !options_.fast_order);
  LOCKSTEP_CHECK(options_.compressed == nullptr ||
                 (options_.bucket_offsets.empty() && sums_.data == gradients_));
  if (options_.residuals != nullptr) {
    LOCKSTEP_CHECK(options_.wire == DType::kBF16 && !reduces_each_lane_ && !sums_.packed);
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
  last_read_.resize(options_.buckets.size());
}

void Reducer::cut_own_parts() {
  size_t pieces = 0;
  for (size_t b = 0; b < options_.buckets.size(); ++b) {
    first_piece_.push_back(pieces);
    own_pieces_.push_back(cut_range(own_part(static_cast<int>(b)), options_.tensor_begins));
    pieces += own_pieces_.back().size();
  }
  bit_checksums_ = math_.host_array<uint32_t>(pieces);
}

void Reducer::begin_step(TransferChecksums* transfers) {
  transfers_ = transfers;
  lane_ = 0;
  ring_.clear();
  waits_.clear();
  *squares_ = {};
  std::ranges::fill(bit_checksums_, 0u);
}

void Reducer::bucket_begins(int bucket) {
  uint64_t last = 0;  // exchange that read the memory which this bucket is about to overwrite
  size_t last_bucket = 0;
  for (size_t other = 0; other < last_exchange_.size(); ++other) {
    if (last_exchange_[other] <= last || !overlap(bucket, static_cast<int>(other))) continue;
    last = last_exchange_[other];
    last_bucket = other;
  }
  while (exchanges_ - in_flight() < last) complete_oldest();
  if (node_ != nullptr && last > 0)
    waits_.wait(last_read_[last_bucket], Wait::kExchange, static_cast<int>(last_bucket));
  for (const Range& gap : options_.bucket_gaps[static_cast<size_t>(bucket)])
    math_.fill_zeros(gradient_at(lane_gradients(), bucket, gap.begin), gap.size());
}

void Reducer::bucket_ready(int bucket) {
  if (!reduces_each_lane_) {
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

// Adds the lane that is complete to the partial sums before it.
void Reducer::merge_lanes(int bucket) {
  const Range& range = bucket_range(bucket);
  float* const first = gradient_at(gradients_, bucket, range.begin);
  round_lane(bucket, lane_, first + depth_of(lane_) * gradient_elements_, range.size());
  if (!options_.interleaved_lanes)
    return propagate_carries(bucket, first, gradient_elements_, lane_, range.size());
  if (lane_ + 1 < lanes_.count) return;
  for (int stride = 1; stride < lanes_per_sum_; stride *= 2) {
    for (int lane = 0; lane < lanes_.count; lane += 2 * stride)
      merge(bucket,
            {lane, 2 * stride},
            first + lane * gradient_elements_,
            first + (lane + stride) * gradient_elements_,
            range.size());
  }
}

// Adds the sum of `lane`, which is in its buffer already, to a binary counter of sums, which are
// `stride` floats apart.
void Reducer::propagate_carries(int bucket, float* sums, int64_t stride, int lane, int64_t n) {
  const int top = depth_of(lane);
  const int merges = std::countr_one(static_cast<unsigned>(lane % lanes_per_sum_));
  for (int merged = 1; merged <= merges; ++merged) {
    float* const from = sums + (top + 1 - merged) * stride;
    merge(bucket, {lane + 1 - (1 << merged), 1 << merged}, from - stride, from, n);
  }
}

// Adds two halves of a sum of this rank's own lanes.
void Reducer::merge(int bucket, const LaneSum& local, float* into, const float* from, int64_t n) {
  const void* both[2] = {into, from};
  TreeSumTerms terms = {.arrays = both, .count = 2, .wire = wire_of(bucket)};
  // This is the sum over all lanes if this rank has them all or has summed each of them across the
  // ranks.
  terms.round_sum =
      local.count == lanes_.count && (reduces_each_lane_ || communicator_.size() == 1);
  if (keeps_residuals(bucket)) {
    terms.residuals = residuals_->of_lanes(options_.residuals, local, bucket_range(bucket).begin);
    if (!terms.residuals) terms.wire = DType::kF32;
  }
  math_.tree_sum(terms, into, n);
}

// Passes the groups that this lane completes to the compressed all-reduce.
void Reducer::add_to_compressed(int bucket) {
  if ((lane_ + 1) % lanes_per_sum_ != 0) return;
  const Range& range = bucket_range(bucket);
  const float* const sums = gradient_at(gradients_, bucket, range.begin);
  if (!options_.interleaved_lanes)
    return options_.compressed->add(lane_ / lanes_per_sum_, range, sums);
  if (lane_ + 1 < lanes_.count) return;
  for (int lane = 0; lane < lanes_.count; lane += lanes_per_sum_)
    options_.compressed->add(lane / lanes_per_sum_, range, sums + lane * gradient_elements_);
}

// Rounds a lane's gradients if a group has only this lane.
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

// Whether two buckets share memory.
bool Reducer::overlap(int bucket, int other) const {
  const int64_t begin = bucket_offset(bucket), other_begin = bucket_offset(other);
  return begin < other_begin + bucket_range(other).size() &&
         other_begin < begin + bucket_range(bucket).size();
}

// This rank's part of a bucket, and the address of its sum over all ranks.
Range Reducer::own_part(int bucket) const {
  return part_of(bucket_range(bucket), part_, communicator_.size());
}

float* Reducer::own_sums(int bucket, int lane) const {
  const int64_t ranks = communicator_.size();
  float* const first = sums_.at(own_part(bucket).begin, bucket_range(bucket).begin / ranks);
  return reduces_each_lane_ ? first + depth_of(lane) * (elements_ / ranks) : first;
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
  std::optional<int64_t> offset = ring_.take(range.size());
  for (; !offset; offset = ring_.take(range.size())) complete_oldest();
  // The exchanges in flight have had the time of a bucket: what they wait for should have arrived.
  const uint64_t number = exchanges_++;
  for (uint64_t i = number + 1 - in_flight(); i < number; ++i) {
    Exchange& earlier = exchange_of(i);
    if (earlier.level + 1 == groups_.size()) continue;
    sum_level(earlier);
    ++earlier.level;
    start_level(earlier);
  }
  float* const staging = staging_ + staging_elements(*offset, options_.topology);
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
  FlightRecorder::here().set_bucket(exchange.bucket);
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
  if (wire != DType::kF32) {  // the staging holds what is sent and what is received
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

// The terms that the group has for range `mine`, in the order of its ranks, in `arrays`.
TreeSumTerms Reducer::terms_of(const Exchange& exchange,
                               const Range& mine,
                               const void** arrays) const {
  if (options_.fast_order) {
    arrays[0] = exchange.received;  // summed already
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

// The addresses, in `copies`, at which the other ranks of the node want the sum of `mine`. Returns
// their number.
int Reducer::copies_of(const Exchange& exchange, const Range& mine, float** copies) const {
  if (!options_.replicated_sums) return 0;
  int count = 0;
  for (int i = 0; i < node_->count(); ++i) {
    if (i == node_->index()) continue;
    copies[count++] =
        gradient_at(reinterpret_cast<float*>(node_->piece(i)), exchange.bucket, mine.begin);
  }
  return count;
}

// Sums this rank's part of the range over the group. The part becomes the exchange's range.
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
  terms.round_sum = last && (!reduces_each_lane_ || lanes_.count == 1);
  if (keeps_residuals(exchange.bucket))
    terms.residuals = residuals_->of_level(
        options_.residuals, exchange.level, bucket_range(exchange.bucket).begin);
  terms.copies = copies.data();
  terms.copy_count = copies_of(exchange, mine, copies.data());
  math_.tree_sum(terms, to, mine.size());
  // Sums that are written to the others are waited for once, after the last bucket.
  const size_t bucket = static_cast<size_t>(exchange.bucket);
  if (in_place && (options_.replicated_sums ? bucket + 1 == options_.buckets.size()
                                            : !options_.bucket_offsets.empty()))
    last_read_[bucket] = waits_.signal(NodeMemory::Event::kGradientsRead, bytes_of(mine));
  exchange.range = mine;
}

void Reducer::complete_oldest() {
  Exchange& exchange = exchange_of(exchanges_ - in_flight());
  sum_level(exchange);
  while (++exchange.level < groups_.size()) {
    start_level(exchange);
    sum_level(exchange);
  }
  if (reduces_each_lane_) {
    propagate_carries(exchange.bucket,
                      own_sums(exchange.bucket, 0),
                      elements_ / communicator_.size(),
                      exchange.lane,
                      exchange.range.size());
  }
  if (!reduces_each_lane_ || exchange.lane + 1 == lanes_.count) measure_sums(exchange.bucket);
  ring_.give_back();
}

// Called right after a bucket is summed, while it is still in cache.
void Reducer::measure_sums(int bucket) {
  const float* const sums = own_sums(bucket, 0);
  const Range mine = own_part(bucket);
  const bool squared = options_.norm && static_cast<size_t>(bucket) < options_.gradient_buckets;
  if (bit_checksums_.empty()) {
    if (squared) math_.add_squares(sums, mine.size(), squares_);
    return;
  }
  uint32_t* bits = &bit_checksums_[first_piece_[static_cast<size_t>(bucket)]];
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
  if (options_.replicated_sums)  // the parts that other ranks sum
    waits_.wait(last_read_.back(), Wait::kExchange, static_cast<int>(last_read_.size()) - 1);
  if (options_.compressed == nullptr) return;
  options_.compressed->finish(gradients_);
  for (size_t b = 0; b < options_.buckets.size(); ++b) measure_sums(static_cast<int>(b));
}

StepTotals Reducer::totals(std::span<const LaneStatistics> local, const StepReport& step_report) {
  math_.synchronize();
  return exchange_totals(local, step_report);
}

StepTotals Reducer::exchange_totals(std::span<const LaneStatistics> local,
                                    const StepReport& step_report) {
  LOCKSTEP_CHECK(local.size() == static_cast<size_t>(lanes_.count));
  const size_t ranks = static_cast<size_t>(communicator_.size()), lanes = local.size();
  const size_t part = exchange_.size() / ranks;
  const auto part_of_rank = [&](size_t r) { return exchange_.data() + r * part; };
  const Report mine = {step_report, *squares_};
  std::byte* const to = part_of_rank(static_cast<size_t>(communicator_.rank()));
  std::memcpy(to, &mine, sizeof(mine));
  std::memcpy(to + sizeof(mine), local.data(), local.size_bytes());
  if (ranks > 1)
    waits_.timed(Wait::kTotals, -1, [&] { control_.all_gather(exchange_.data(), part); });

  StepTotals totals;
  totals.digest = step_report.digest;
  ExactSum squares;
  for (size_t r = 0; r < ranks; ++r) {
    Report report;
    std::memcpy(&report, part_of_rank(r), sizeof(report));
    const auto& [flags, digest, busy_ms] = report.step_report;
    totals.flags |= flags;
    totals.digest_sum = r == 0 ? digest : add_halves(totals.digest_sum, digest);
    totals.digests_differ = totals.digests_differ || digest != step_report.digest;
    squares += report.squares;
    if (r == 0 || busy_ms > totals.slowest_ms) {
      totals.slowest_ms = busy_ms;
      totals.slowest_rank = static_cast<int>(r);
    }
    totals.fastest_ms = r == 0 ? busy_ms : std::min(totals.fastest_ms, busy_ms);
  }
  totals.squared_norm = squares.value();
  // In lane order, which gives the same sums on any number of ranks.
  for (size_t lane = 0; lane < lanes * ranks; ++lane) {
    const auto [r, index] = lanes_.stride == 1 ? std::pair(lane / lanes, lane % lanes)
                                               : std::pair(lane % ranks, lane / ranks);
    LaneStatistics statistics;
    std::memcpy(&statistics,
                part_of_rank(r) + sizeof(Report) + index * sizeof(statistics),
                sizeof(statistics));
    totals.loss_sum += statistics.values[0];
    totals.valid_count += statistics.values[1];
    totals.correct_count += statistics.values[2];
    totals.top5_count += statistics.values[3];
  }
  return totals;
}

}  // namespace lockstep
