#include "launcher/forecast/step_forecast.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "launcher/forecast/loading.h"
#include "launcher/forecast/timed_run.h"

namespace lockstep::forecast {
namespace {

using collectives::Topology;

// A bound of all ranges: the least times or the most.
using Bound = double Range::*;

constexpr double kGiga = 1e9, kMega = 1e6, kMicro = 1e-6;

// The time of a message of `bytes` from each rank's buffer among all ranks, in a reduce-scatter or
// an all-gather.
class Links {
 public:
  Links(const Place& place, const Topology& topology) : place_(place), topology_(topology) {
    if (place.link != nullptr || place.hardware->kind == Hardware::Kind::kGpu) return;
    // CPUs that do not sum in place: the sender writes a message and the receiver copies it, which
    // touches memory four times. Assumed, as is the latency.
    through_memory_.latency_us = 3;
    through_memory_.gbytes_per_s = place.hardware->memory_gbytes_per_s / (4 * topology.per_node);
  }

  double seconds(double bytes) const {
    double seconds = 0;
    const Link* const link = place_.link != nullptr ? place_.link : &through_memory_;
    if (topology_.per_node > 1 && !topology_.shares_memory && link->gbytes_per_s > 0)
      seconds += level(*link, topology_.per_node, bytes);
    // The ranks of a node share its network, and each sends its part.
    if (topology_.nodes > 1 && place_.network != nullptr)
      seconds += level(*place_.network, topology_.nodes, bytes);
    return seconds;
  }

  // The time of a rank's thread for what it sends and receives of that between nodes. Assumed: a
  // core moves 0.8 to 2 GB/s each way over TCP. GPUs' messages need no CPU.
  Range thread_seconds(double bytes) const {
    constexpr Range kSecondsOfGbyte = {0.5, 1.25};
    if (topology_.nodes == 1 || place_.hardware->kind == Hardware::Kind::kGpu) return {};
    const double sent = bytes * (topology_.nodes - 1) / topology_.nodes / topology_.per_node;
    return kSecondsOfGbyte * (sent / kGiga);
  }

  // The time of a few numbers from all ranks to all.
  double totals() const { return 2 * seconds(0); }

  // What the links carry at most, in seconds, while a rank computes an op.
  double unattended_seconds() const {
    // Without a measurement; GPUs' messages need no calls.
    constexpr double kMbytes = 3;
    if (topology_.nodes == 1 || place_.network == nullptr ||
        place_.hardware->kind == Hardware::Kind::kGpu)
      return std::numeric_limits<double>::infinity();
    const double mbytes = place_.network->unattended_mbytes;
    return (mbytes > 0 ? mbytes : kMbytes) * kMega / (place_.network->gbytes_per_s * kGiga);
  }

 private:
  static double level(const Link& link, int count, double bytes) {
    const double hops = std::ceil(std::log2(count));
    return link.latency_us * kMicro * hops +
           bytes * (count - 1) / count / (link.gbytes_per_s * kGiga);
  }

  const Place& place_;
  const Topology& topology_;
  Link through_memory_;  // if the place has no link
};

// The clock of the simulation: a rank, and links that carry one message after the other. They work
// side by side, the links while the rank computes an op for `unattended_s` at most.
class Clock {
 public:
  explicit Clock(double unattended_s) : unattended_s_(unattended_s) {}

  void compute(double seconds) {
    rank_ += seconds;
    carried_ = std::min(exchange_, carried_ + std::min(seconds, unattended_s_));
  }
  // A message that is sent now, and takes the links and the rank's thread so many seconds. Returns
  // its place among all: what the links have carried when it has arrived.
  double send(double seconds, double thread_seconds) {
    thread_ += thread_seconds;
    return exchange_ += seconds;
  }
  void wait_for(double message) {
    if (message <= carried_) return;
    const double seconds = message - carried_;
    thread_ = std::max(0.0, thread_ - seconds);
    rank_ += seconds;
    exposed_ += seconds;
    carried_ = message;
  }
  // The end of the exchange: what the thread has not done while it waited is late.
  void finish_exchange() {
    wait_for(exchange_);
    rank_ += std::exchange(thread_, 0);
  }

  double seconds() const { return rank_; }
  double exchange() const { return exchange_; }
  double exposed() const { return exposed_; }

 private:
  const double unattended_s_;
  double rank_ = 0, thread_ = 0, exchange_ = 0, carried_ = 0, exposed_ = 0;
};

// The time of an update on CPUs relative to that with moments in FP32. Measured: stochastic
// rounding takes AdamW 2.8 times and SGD 6 times as long; blocks take AdamW 4 times as long if the
// arrays are in memory, and 6.5 times in the cache.
double time_of_moments(OptimizerConfig::MomentType type) {
  switch (type) {
    case OptimizerConfig::MomentType::kFp32: return 1;
    case OptimizerConfig::MomentType::kBf16: return 3;
    case OptimizerConfig::MomentType::kInt8: return 5;
  }
  return 1;
}

class Simulation {
 public:
  Simulation(const run::PreparedRun& prepared,
             const Place& place,
             const GraphWork& work,
             const std::vector<OpTime>& times,
             const OpTimes& op_times)
      : prepared_(prepared),
        program_(prepared.plan.programs.training),
        work_(work),
        times_(times),
        links_(place, prepared.plan.sharding.topology),
        buckets_(prepared.plan.layout.all_buckets()) {
    const double gradients = gradient_bytes(prepared);
    lane_sum_ = op_times.time(kLaneSum, gradients, lane_extents(prepared)).seconds;
    rest_ = op_times.time(kStepRest, gradients, {memory_sharers(prepared)}).seconds;
    update_ = op_times.time(update_name(prepared), update_bytes(prepared), {}).seconds;
    if (place.hardware->kind == Hardware::Kind::kCpu)
      update_ = update_ * time_of_moments(prepared.config.optimizer.moments);
  }

  Range sums() const { return lane_sum_ * lanes() + rest_; }
  const Range& update() const { return update_; }
  int lanes() const { return prepared_.plan.sharding.shares().most(); }

  Clock run(Bound bound) const {
    const plan::ShardingPlan& sharding = prepared_.plan.sharding;
    const bool several = sharding.topology.ranks() > 1;
    Clock clock(links_.unattended_seconds());
    for (int lane = 0; lane < lanes(); ++lane) {
      const bool gathers = several && (lane == 0 || program_.gathers_each_run);
      const bool sends = several && (lane == lanes() - 1 || sharding.shards_gradients());
      run_lane(bound, gathers, sends, clock);
      clock.compute(lane_sum_.*bound);
    }
    clock.finish_exchange();
    if (several && !prepared_.plan.traffic.sum_gathers.empty())
      clock.wait_for(send(bound, sum_bytes(), clock));
    if (several) clock.wait_for(clock.send(links_.totals(), 0));
    clock.compute(rest_.*bound + update_.*bound);
    return clock;
  }

 private:
  double bucket_bytes(int bucket, DType type) const {
    return static_cast<double>(buckets_[static_cast<size_t>(bucket)].size()) *
           static_cast<double>(size_of(type));
  }

  double send(Bound bound, double bytes, Clock& clock) const {
    return clock.send(links_.seconds(bytes), links_.thread_seconds(bytes).*bound);
  }

  double sum_bytes() const {
    const plan::TrafficPlan& traffic = prepared_.plan.traffic;
    double bytes = 0;
    for (const auto& item : traffic.sum_gathers.rounded)
      bytes += bucket_bytes(item.bucket, traffic.wire);
    for (const auto& item : traffic.sum_gathers.floats)
      bytes += bucket_bytes(item.bucket, DType::kF32);
    return bytes;
  }

  void run_lane(Bound bound, bool gathers, bool sends, Clock& clock) const {
    const plan::Plan& plan = prepared_.plan;
    const DType gathered =
        plan.sharding.shards_optimizer() ? plan.layout.compute : plan.traffic.wire;
    std::vector<double> arrived;
    for (size_t i = 0; gathers && i < program_.gathers.size(); ++i)
      arrived.push_back(send(bound, bucket_bytes(program_.gathers[i].bucket, gathered), clock));
    for (size_t op = 0; op < work_.of_op.size(); ++op) {
      const size_t needed =
          gathers && op < program_.gathered_before_op.size() ? program_.gathered_before_op[op] : 0;
      if (needed > 0) clock.wait_for(arrived[std::min(needed, arrived.size()) - 1]);
      clock.compute(times_[work_.of_op[op]].seconds.*bound);
      if (!sends || plan.traffic.power_sgd) continue;
      for (const int bucket : program_.buckets_after_op[op])
        send(bound, bucket_bytes(bucket, plan.traffic.wire), clock);
    }
  }

  const run::PreparedRun& prepared_;
  const plan::ProgramPlan& program_;
  const GraphWork& work_;
  const std::vector<OpTime>& times_;
  const Links links_;
  const std::vector<collectives::Range> buckets_;
  Range lane_sum_, rest_, update_;
};

// The ops by kind, those that take longest first.
std::vector<ForecastPart> parts_of(const GraphWork& work,
                                   const std::vector<OpTime>& times,
                                   int lanes) {
  std::map<std::string, ForecastPart> kinds;
  for (size_t i = 0; i < times.size(); ++i) {
    const std::string name = graph::name_of(work.works[i].kind);
    ForecastPart& part = kinds.try_emplace(name, ForecastPart{name, {}, true, {}}).first->second;
    part.seconds += times[i].seconds * (static_cast<double>(work.works[i].count) * lanes);
    part.measured = part.measured && times[i].measured;
    if (work.works[i].kernels)
      part.kernels += *work.works[i].kernels * (work.works[i].count * lanes / work.works[i].lanes);
  }
  std::vector<ForecastPart> parts;
  for (auto& [name, part] : kinds) parts.push_back(std::move(part));
  std::ranges::stable_sort(
      parts, [](const auto& a, const auto& b) { return a.seconds.high > b.seconds.high; });
  return parts;
}

cuda::KernelWork lane_sums_of(const run::PreparedRun& prepared) {
  const plan::ShardingPlan& sharding = prepared.plan.sharding;
  const collectives::SumSchedule schedule = sharding.shares().schedule(0);
  cuda::KernelWork work;
  for (size_t batch = 0; batch < schedule.size(); ++batch) {
    for (const collectives::SumSchedule::Pass& pass : schedule[batch].passes) {
      work.launches += static_cast<int64_t>(prepared.plan.layout.buckets.size());
      work.bytes += static_cast<double>(pass.terms.size() + 1) * gradient_bytes(prepared);
    }
  }
  return work;
}

std::vector<ForecastProduct> products_of(const GraphWork& work, const OpTimes& times, int lanes) {
  std::vector<ForecastProduct> products;
  for (const OpWork& op : work.works)
    for (const Product& product : op.products) {
      const int64_t count = op.count * product.repeats * lanes / op.lanes;
      const double seconds = times.least_seconds(op, product);
      const auto known = std::ranges::find_if(products, [&](const ForecastProduct& other) {
        const Product& o = other.product;
        return std::tuple(o.m, o.n, o.k, o.groups, o.convolution, other.least_seconds) ==
               std::tuple(
                   product.m, product.n, product.k, product.groups, product.convolution, seconds);
      });
      if (known == products.end())
        products.push_back({op.name, product, count, seconds});
      else
        known->count += count;
    }
  std::ranges::stable_sort(products, std::greater(), [](const ForecastProduct& each) {
    return each.least_seconds * static_cast<double>(each.count);
  });
  return products;
}

}  // namespace

StepForecast forecast_step(const run::PreparedRun& prepared, const Place& place) {
  const Arithmetic arithmetic = arithmetic_of(prepared);
  const OpTimes op_times(*place.hardware,
                         arithmetic,
                         {.ranks = place.ranks_per_node, .threads = place.threads},
                         place.known);
  const GraphWork work =
      work_of_run(prepared, prepared.graphs->training, gpu_of(*place.hardware, arithmetic));
  std::vector<OpTime> times;
  StepForecast forecast;
  double measured = 0;
  for (const OpWork& op : work.works) {
    times.push_back(op_times.time(op));
    times.back().seconds = times.back().seconds * (1.0 / op.lanes);  // of each lane
    const Range seconds = times.back().seconds * static_cast<double>(op.count);
    forecast.compute += seconds;
    if (times.back().measured) measured += seconds.middle();
    forecast.least_seconds += op_times.least_seconds(op) * static_cast<double>(op.count) / op.lanes;
  }
  const Simulation simulation(prepared, place, work, times, op_times);
  const int lanes = simulation.lanes();
  forecast.measured_share = measured / std::max(forecast.compute.middle(), 1e-30);
  forecast.compute = forecast.compute * lanes;
  forecast.least_seconds *= lanes;
  forecast.sums = simulation.sums();
  forecast.update = simulation.update();
  const Clock least = simulation.run(&Range::low), most = simulation.run(&Range::high);
  forecast.exchange = {least.exchange(), most.exchange()};
  forecast.exposed = {least.exposed(), most.exposed()};
  const int ranks = prepared.plan.sharding.topology.ranks();
  const double behind = std::sqrt(2 * std::log(ranks));
  forecast.stragglers = {least.seconds() * place.spread.low * behind,
                         most.seconds() * place.spread.high * behind};
  forecast.step = Range{least.seconds(), most.seconds()} + forecast.stragglers;
  const Loading loading = loading_of(prepared, place.threads);
  forecast.loading = loading.seconds;
  // On CPUs the loader's threads share the cores of those that compute.
  if (place.hardware->kind == Hardware::Kind::kCpu)
    forecast.step += loading.seconds * (static_cast<double>(loading.threads) / place.threads);
  forecast.step = {std::max(forecast.step.low, loading.seconds.low),
                   std::max(forecast.step.high, loading.seconds.high)};
  forecast.model_flops = prepared.flops_per_sample *
                         static_cast<double>(prepared.config.train.global_batch) /
                         prepared.plan.sharding.lanes * lanes;
  const double share =
      place.hardware->kind == Hardware::Kind::kGpu
          ? 1
          : static_cast<double>(place.threads) / static_cast<double>(place.hardware->cpu.cores);
  forecast.mfu = rate_of(
      forecast.model_flops,
      forecast.step * (peak_flops(*place.hardware, arithmetic, arithmetic.compute) * share));
  forecast.ops = parts_of(work, times, lanes);
  forecast.products = products_of(work, op_times, lanes);
  if (place.hardware->kind == Hardware::Kind::kGpu) forecast.lane_sums = lane_sums_of(prepared);
  return forecast;
}

}  // namespace lockstep::forecast
