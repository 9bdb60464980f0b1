// How a bucket is summed across the ranks.
//
// At each level of the topology, a reduce-scatter by pairwise exchange. The `count` ranks of a
// group cut the exchange's range into `count` parts. Each rank sends part i of the sums that it
// offers to index i, receives its own part of all others' sums, and adds the terms in the order of
// the lanes, as far as the tree goes (exchange_levels.h). That part is the range of the next level.
// Eight lanes on four ranks, two on each node:
//
//   lanes     0   1   2   3   4   5   6   7
//   ranks     \-0-/   \-1-/   \-2-/   \-3-/      each rank: 0+1, 2+3, 4+5, 6+7
//   nodes         \-----/         \-----/        level 0: (0+1)+(2+3), (4+5)+(6+7)
//   run                 \---------/              level 1: their sum
//
// Eight lanes on three ranks of one node: rank 0 offers 0+1; rank 1 offers 2+3 and 4; rank 2 offers
// 5 and 6+7. The owner of a part adds ((0+1)+(2+3)) + ((4+5)+(6+7)): the same additions.
//
// Invariant: every addition is a node of the one tree over all lanes, whose two terms are its left
// and its right subtree.
//
// Overlap: start_exchange() returns while the backward pass continues. exchanges_ limits the
// elements in flight and assigns staging memory; exchanges complete in the order of their start.
// Whenever one starts, earlier ones move on to their next level, if any.
//
// What starts and completes when depends on bucket sizes and calls, never on timing: the ranks must
// start the same operations in the same order. Keep it so.
#include "collectives/reduce/level_exchange.h"

#include <algorithm>
#include <utility>

#include "collectives/shm/prefetch.h"
#include "runtime/base/error.h"
#include "runtime/base/flight_recorder.h"

namespace lockstep::collectives {
namespace {

// Exchanges and gathers may be in flight together, and a lane's gather besides.
static_assert(kMaxExchangesInFlight + kMaxGathersInFlight < Communicator::kMaxPending);

size_t bytes_of(const Range& range) { return static_cast<size_t>(range.size()) * sizeof(float); }

}  // namespace

LevelExchange::LevelExchange(GradientExchangeSetup setup,
                             const StagingMemory& staging,
                             const WireRounding& wire)
    : GradientExchange(setup),
      last_read_(gradients_.buckets.size()),
      staging_(staging),
      wire_(wire),
      staging_of_two_(staging_elements(2 * int64_t{ranks()}, setup.topology, shares_, wire.type)),
      exchanges_(staging.elements) {
  LOCKSTEP_CHECK(setup.topology.ranks() == ranks());
  LOCKSTEP_CHECK(setup.topology.shares_memory == (node_ != nullptr));
  arrays_.reserve(static_cast<size_t>(most_terms(setup.topology, shares_)));
}

void LevelExchange::begin_step(TransferChecksums* transfers) {
  GradientExchange::begin_step(transfers);
  exchanges_.clear();
}

void LevelExchange::complete_until(uint64_t number, int bucket) {
  while (exchanges_.completed() < number) complete_oldest();
  if (node_ != nullptr)
    waits_.wait(last_read_[static_cast<size_t>(bucket)], Wait::kExchange, bucket);
}

void LevelExchange::start_exchange(int bucket, int turn, const std::vector<ExchangeLevel>& levels) {
  const Range& range = gradients_.range(bucket);
  std::optional<int64_t> offset = exchanges_.take(range.size());
  for (; !offset; offset = exchanges_.take(range.size())) complete_oldest();
  // The exchanges in flight have had the time of a bucket: what they wait for should have arrived.
  exchanges_.for_each_older([&](Exchange& earlier) {
    if (earlier.level + 1 == earlier.levels->size()) return;
    sum_level(earlier);
    ++earlier.level;
    start_level(earlier);
  });
  float* const staging = staging_.data + *offset / (2 * ranks()) * staging_of_two_;
  const float* const offered = gradients_.at(gradients_.buffer(0), bucket, range.begin);
  Exchange& exchange = exchanges_.start();
  exchange = {.bucket = bucket,
              .turn = turn,
              .levels = &levels,
              .range = range,
              .floats = {reinterpret_cast<const std::byte*>(offered),
                         static_cast<size_t>(gradients_.elements) * sizeof(float)},
              .kept = staging,
              .moved = reinterpret_cast<std::byte*>(staging)};
  const ExchangeLevel& first = levels.front();
  if (levels.size() > 1 && first.sums.size() > 1)
    exchange.moved += first.sums.size() * bytes_of(range) / static_cast<size_t>(first.group.count);
  note_exchange(bucket, exchanges_.started());
  start_level(exchange);
}

void LevelExchange::start_level(Exchange& exchange) {
  if (waits_.observer() != nullptr) exchange.start_ms = now_ms();
  const ExchangeLevel& level = (*exchange.levels)[exchange.level];
  const int me = level.group.index_of(rank_), mine = level.offered[static_cast<size_t>(me)];
  const auto offer = [&](const Offered& sums, DType dtype) {
    for (int k = 0; transfers_ != nullptr && k < mine; ++k)
      transfers_->offer(exchange.bucket,
                        exchange.level,
                        sums.first + static_cast<size_t>(k) * sums.stride,
                        dtype);
  };
  if (in_memory(exchange.level)) {
    offer(exchange.floats, DType::kF32);
    exchange.arrival = waits_.signal(NodeMemory::Event::kGradients, bytes_of(exchange.range));
    return;
  }
  FlightRecorder::here().set_bucket(exchange.bucket);
  const int64_t n = exchange.range.size();
  const DType wire = wire_of(exchange.bucket);
  exchange.received = exchange.moved;
  exchange.sent = exchange.floats;
  if (wire != DType::kF32) {  // the staging holds what is sent and what is received
    const size_t bytes = static_cast<size_t>(n) * size_of(wire);
    exchange.sent = {exchange.moved, bytes};
    for (int k = 0; k < mine; ++k, exchange.received += bytes)
      math_.pack(reinterpret_cast<const float*>(exchange.floats.first +
                                                static_cast<size_t>(k) * exchange.floats.stride),
                 wire,
                 exchange.received,
                 n);
  }
  offer(exchange.sent, wire);
  exchange.arrival.handle =
      slices_.start_exchange({exchange.sent.first,
                              exchange.received,
                              static_cast<size_t>(n / level.group.count) * size_of(wire),
                              level.group,
                              level.offered,
                              exchange.sent.stride});
}

// Lists the terms that the group has for range `mine` in arrays_, in the order of the lanes.
void LevelExchange::list_terms(const Exchange& exchange, const Range& mine) {
  const ExchangeLevel& level = (*exchange.levels)[exchange.level];
  const int me = level.group.index_of(rank_);
  const size_t slot = static_cast<size_t>(mine.size()) * size_of(wire_of(exchange.bucket));
  arrays_.clear();
  for (int i = 0; i < level.group.count; ++i) {
    for (int k = 0; k < level.offered[static_cast<size_t>(i)]; ++k) {
      if (in_memory(exchange.level)) {
        float* const buffer = reinterpret_cast<float*>(node_->piece(i)) + k * gradients_.elements;
        arrays_.push_back(gradients_.at(buffer, exchange.bucket, mine.begin));
      } else if (i == me) {
        arrays_.push_back(exchange.sent.first + static_cast<size_t>(k) * exchange.sent.stride +
                          static_cast<size_t>(me) * slot);
      } else {
        arrays_.push_back(exchange.received + arrays_.size() * slot);
      }
    }
  }
}

// Adds up this rank's part of the range over the group. The part becomes the exchange's range.
void LevelExchange::sum_level(Exchange& exchange) {
  const double end_ms = waits_.wait(exchange.arrival, Wait::kExchange, exchange.bucket);
  const bool in_place = in_memory(exchange.level);
  const DType wire = wire_of(exchange.bucket);
  const DType offered = in_place ? DType::kF32 : wire;
  if (ExchangeObserver* observer = waits_.observer())
    observer->exchanged(exchange.bucket,
                        static_cast<size_t>(exchange.range.size()) * size_of(offered),
                        exchange.level,
                        exchange.start_ms,
                        end_ms);
  const ExchangeLevel& level = (*exchange.levels)[exchange.level];
  const Range mine = part_of(exchange.range, level.group.index_of(rank_), level.group.count);
  list_terms(exchange, mine);
  if (in_place)
    for (const void* array : arrays_) prefetch_written(array, bytes_of(mine));
  if (transfers_ != nullptr)
    transfers_->take(exchange.bucket, exchange.level, arrays_, level.offered, offered);
  const bool last = exchange.level + 1 == exchange.levels->size();
  float* const kept = level.sums.size() > 1
                          ? exchange.kept
                          : gradients_.at(gradients_.buffer(0), exchange.bucket, mine.begin);
  for (size_t s = 0; s < level.sums.size(); ++s) {
    const JoinedTerms& joined = level.sums[s];
    TreeSumTerms terms = {.arrays = arrays_.data() + joined.first,
                          .count = joined.count(),
                          .wire = wire,
                          .travelled = !in_place && wire != DType::kF32,
                          .round_sum = joined.sum == LaneSum{0, shares_.lanes},
                          .joins = joined.is_balanced() ? nullptr : joined.joins.data()};
    complete(terms, exchange.bucket, exchange.level, s, mine);
    float* const to = last ? place_of(exchange.bucket, exchange.turn, s)
                           : kept + static_cast<int64_t>(s) * mine.size();
    math_.tree_sum(terms, to, mine.size());
  }
  if (in_place && announces_reads(exchange.bucket))
    last_read_[static_cast<size_t>(exchange.bucket)] =
        waits_.signal(NodeMemory::Event::kGradientsRead, bytes_of(mine));
  exchange.range = mine;
  exchange.floats = {reinterpret_cast<const std::byte*>(kept), bytes_of(mine)};
}

void LevelExchange::complete_oldest() {
  Exchange& exchange = exchanges_.oldest();
  sum_level(exchange);
  while (++exchange.level < exchange.levels->size()) {
    start_level(exchange);
    sum_level(exchange);
  }
  summed(exchange.bucket, exchange.turn);
  exchanges_.end_oldest();
}

void LevelExchange::reduce() {
  while (in_flight() > 0) complete_oldest();
  GradientExchange::reduce();
}

}  // namespace lockstep::collectives
