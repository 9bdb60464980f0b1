// Catches: less under way than there is room for, and more than a communicator can keep.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "collectives/gather/bucket_all_gather.h"
#include "collectives/reduce/tree_exchange.h"
#include "tests/reference/plain_math.h"
#include "tests/reference/thread_communicator.h"

namespace lockstep::collectives {
namespace {

// Counts the operations of another communicator that are under way.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(Communicator& counted) : counted_(counted) {}
  int rank() const override { return counted_.rank(); }
  int size() const override { return counted_.size(); }
  const char* name() const override { return "counting"; }
  int start_exchange(const SliceExchange& exchange) override {
    return started(counted_.start_exchange(exchange));
  }
  int start_all_gather(std::byte* buffer,
                       size_t bytes,
                       const RankGroup& group,
                       std::span<const int> counts) override {
    return started(counted_.start_all_gather(buffer, bytes, group, counts));
  }
  int start_reduce_scatter(const float* send, float* receive, int64_t elements) override {
    return started(counted_.start_reduce_scatter(send, receive, elements));
  }
  void wait(int handle) override {
    counted_.wait(handle);
    --under_way_;
  }
  void broadcast(std::byte* buffer, size_t bytes, int root) override {
    counted_.broadcast(buffer, bytes, root);
  }
  int most() const { return max_; }

 private:
  int started(int handle) {
    max_ = std::max(max_, ++under_way_);
    return handle;
  }
  Communicator& counted_;
  int under_way_ = 0, max_ = 0;
};

// The most operations that two ranks have under way in a step whose buckets are of so many units
// each, and in the gather after it.
std::pair<int, int> max_in_flight(const std::vector<int64_t>& units, int64_t limit_units) {
  constexpr int64_t kUnit = 2 * kSliceAlignment;
  std::vector<Range> buckets;
  std::vector<GatherItem> items;
  for (const int64_t length : units) {
    const int64_t begin = buckets.empty() ? 0 : buckets.back().end;
    items.push_back({static_cast<int>(buckets.size()), static_cast<size_t>(begin) * sizeof(float)});
    buckets.push_back({begin, begin + length * kUnit});
  }
  std::pair<int, int> most;
  testing::run_ranks(2, [&](Communicator& communicator) {
    CountingCommunicator exchanges(communicator), gathers(communicator);
    std::vector<float> gradients(static_cast<size_t>(buckets.back().end));
    std::vector<float> staging(static_cast<size_t>(limit_units * kUnit));
    test::PlainMath math;
    const Topology topology = Topology::flat(2);
    TreeExchange exchange({.communicators = {exchanges, communicator},
                           .math = math,
                           .shares = {.lanes = 2, .ranks = 2},
                           .topology = topology,
                           .gradients = {.data = gradients.data(),
                                         .elements = buckets.back().end,
                                         .buckets = buckets}},
                          {{staging.data(), limit_units * kUnit}});
    exchange.begin_step(nullptr);
    for (size_t b = 0; b < buckets.size(); ++b) exchange.bucket_ready(static_cast<int>(b));
    exchange.end_lane();
    exchange.reduce();
    BucketAllGather gather({gathers, communicator},
                           math,
                           topology,
                           buckets,
                           {.gathered = reinterpret_cast<std::byte*>(gradients.data())});
    gather.start(items);
    gather.finish();
    if (communicator.rank() == 0) most = {exchanges.most(), gathers.most()};
  });
  return most;
}

TEST(UnderWay, AsManyAreUnderWayAsFit) {
  const auto equal = [](size_t count) { return std::vector<int64_t>(count, 2); };
  EXPECT_EQ(max_in_flight(equal(10), 2).first, 1);
  EXPECT_EQ(max_in_flight(equal(10), 7).first, 3);
  EXPECT_EQ(max_in_flight(equal(10), 20), std::pair(10, 10));
  EXPECT_EQ(max_in_flight({8, 1, 1, 1, 1, 1, 1, 1, 1}, 8).first, 8);
  EXPECT_EQ(max_in_flight(equal(100), 200), std::pair(kMaxExchangesInFlight, kMaxGathersInFlight));
}

}  // namespace
}  // namespace lockstep::collectives
