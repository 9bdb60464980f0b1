// Catches: an exchange that is hidden although it is not, or not hidden although there is time;
// ranks and lanes that do not count; a timeline whose first step, waits or truncated names are read
// wrongly; a run's time without its checkpoints, restarts or interruptions; a price or
// power per device that is taken for a node's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "launcher/forecast/run_forecast.h"
#include "launcher/forecast/some_samples.h"
#include "launcher/forecast/timed_run.h"
#include "runtime/base/error.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/device.h"
#include "runtime/metrics/timeline.h"
#include "tests/reference/prepared.h"

namespace lockstep::forecast {
namespace {

constexpr const char* kConfig =
    "model { mlp { hidden: 1024 hidden: 1024 } } "
    "data { synthetic { samples: 6400 features: 784 classes: 10 } } "
    "train { global_batch: 64 lanes: 4 steps: 1000 } optimizer { adamw {} } schedule { lr: 0.001 } "
    "checkpoint { every: 250 async: false } "
    "execution { precision: FP32 threads: 1 } ";

run::PreparedRun prepared_for(const collectives::Topology& topology,
                              const std::vector<std::string>& set = {}) {
  static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  return testing::prepare(config::parse_config(kConfig, "test", set),
                          topology,
                          run::RunPurpose::kTrain,
                          cpu->ops(),
                          {.may_assume_data = true});
}

// 1 TFLOP/s and 100 GB/s.
Hardware test_node() {
  Hardware node;
  node.name = "node";
  node.kind = Hardware::Kind::kCpu;
  node.fp32_tflops = 1;
  node.memory_gbytes_per_s = 100;
  node.memory_gib = 64;
  node.cpu.cores = 1;
  return node;
}

Link link_of(double latency_us, double gbytes_per_s) {
  Link link;
  link.name = "test";
  link.latency_us = latency_us;
  link.gbytes_per_s = gbytes_per_s;
  return link;
}

constexpr Range kNone{0, 0};

TEST(StepForecast, LanesAreSharedByRanks) {
  const Hardware node = test_node();
  const Place place{.hardware = &node, .spread = kNone};
  const StepForecast one = forecast_step(prepared_for({}), place);
  EXPECT_EQ(one.exchange, kNone);
  EXPECT_EQ(one.exposed, kNone);
  EXPECT_LT(one.step.low, one.step.high);
  EXPECT_NEAR(one.step.low, (one.compute + one.sums + one.update).low, 1e-12);
  const StepForecast four = forecast_step(prepared_for(collectives::Topology{4, 1}), place);
  EXPECT_NEAR(four.compute.low, one.compute.low / 4, one.compute.low * 1e-9);
  EXPECT_EQ(four.exchange, kNone);  // the network is not known
  EXPECT_NEAR(four.model_flops, one.model_flops / 4, 1);
}

TEST(StepForecast, WhatTheNetworkTakesIsExposedOrHidden) {
  const Hardware node = test_node();
  const collectives::Topology two{2, 1};
  const auto forecast = [&](const Link& link, const std::vector<std::string>& set = {}) {
    return forecast_step(prepared_for(two, set),
                         {.hardware = &node, .network = &link, .spread = kNone});
  };
  const StepForecast fast = forecast(link_of(0, 1e6));
  const StepForecast slow = forecast(link_of(0, 0.1));
  const StepForecast late = forecast(link_of(1000, 1e6));
  // Half of the gradients to the other rank, and half of the parameters back.
  const double bytes = gradient_bytes(prepared_for(two));
  EXPECT_NEAR(slow.exchange.low, bytes / 0.1e9, bytes / 0.1e9 * 0.01);
  EXPECT_LT(fast.exposed.high, 0.01 * fast.step.high);
  EXPECT_GT(slow.exposed.low, 0.5 * slow.exchange.low);
  EXPECT_LE(slow.exposed.low, slow.exchange.low);
  EXPECT_GT(slow.step.low, slow.exchange.low);
  EXPECT_GE(late.exchange.low, 3 * 1000e-6);
  // One bucket is complete only at the end of the backward pass: nothing is hidden.
  const StepForecast whole = forecast(link_of(0, 0.1), {"comm.bucket_mib=1000"});
  EXPECT_GT(whole.exposed.low, slow.exposed.low);
  // Stage 3 gathers the parameters for each lane, forward and backward.
  const StepForecast gathered = forecast(link_of(0, 0.1), {"comm.zero_stage=STAGE_3"});
  EXPECT_GT(gathered.exchange.low, 1.9 * slow.exchange.low);
}

TEST(StepForecast, LinksOfCpuNodesCarryLittleWhileRanksCompute) {
  Hardware node = test_node();
  Link link = link_of(0, 2);
  const run::PreparedRun prepared = prepared_for(collectives::Topology{2, 1});
  const auto forecast = [&](double mbytes) {
    link.unattended_mbytes = mbytes;
    return forecast_step(prepared, {.hardware = &node, .network = &link, .spread = kNone});
  };
  const StepForecast all = forecast(1e6), little = forecast(0.001);
  EXPECT_NEAR(little.exposed.low, little.exchange.low, 0.01 * little.exchange.low);
  EXPECT_LT(all.exposed.low, 0.97 * little.exposed.low);
  EXPECT_EQ(all.exchange.low, little.exchange.low);
  // GPUs' messages need no calls.
  node.kind = Hardware::Kind::kGpu;
  EXPECT_LT(forecast(0.001).exposed.low, 0.97 * forecast(0.001).exchange.low);
}

TEST(StepForecast, MessagesTakeTimeOfARanksThread) {
  const Hardware node = test_node();
  Link link = link_of(0, 1e6);  // the wire takes none
  link.unattended_mbytes = 1e6;
  const run::PreparedRun prepared = prepared_for(collectives::Topology{2, 1});
  const StepForecast step =
      forecast_step(prepared, {.hardware = &node, .network = &link, .spread = kNone});
  const Range rest = step.compute + step.sums + step.update;
  // 0.5 to 1.25 s a GB: half of the gradients, and half of the parameters.
  const double gbytes = gradient_bytes(prepared) / 1e9;
  EXPECT_NEAR(step.step.low - rest.low, 0.5 * gbytes, 0.02 * gbytes);
  EXPECT_NEAR(step.step.high - rest.high, 1.25 * gbytes, 0.02 * gbytes);
}

TEST(StepForecast, AllWaitForTheSlowestRank) {
  const Hardware node = test_node();
  const run::PreparedRun prepared = prepared_for(collectives::Topology{4, 1});
  const StepForecast even = forecast_step(prepared, {.hardware = &node, .spread = kNone});
  const StepForecast uneven = forecast_step(prepared, {.hardware = &node, .spread = {0.1, 0.1}});
  EXPECT_NEAR(uneven.step.low / even.step.low, 1 + 0.1 * std::sqrt(2 * std::log(4)), 1e-9);
}

TEST(TimedRun, TheLossOfHiddenTokensIsLittleWork) {
  static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  const auto rows_of = [&](const std::string& model) {
    const run::PreparedRun prepared = testing::prepare(
        config::parse_config(
            "model { " + model +
                " { layers: 1 width: 32 heads: 2 context: 64 vocabulary: 256 } } "
                "data { synthetic { classes: 256 } } train { global_batch: 32 lanes: 1 steps: 2 } "
                "optimizer { adamw {} } schedule { lr: 0.001 } execution { precision: FP32 }",
            "test",
            {}),
        {},
        run::RunPurpose::kTrain,
        cpu->ops(),
        {});
    for (const OpWork& work : work_of_run(prepared, prepared.graphs->training).works)
      if (work.kind == graph::OpKind::kLinearCrossEntropy) return work.extents[0];
    return int64_t{0};
  };
  constexpr int64_t kRows = 32 * 64;
  EXPECT_EQ(rows_of("gpt"), kRows);
  EXPECT_GT(rows_of("bert"), kRows / 50);
  EXPECT_LT(rows_of("bert"), kRows / 4);
}

// Targets are the index; from `bad` on no sample can be read.
class NumberedSamples : public data::Dataset {
 public:
  explicit NumberedSamples(int64_t bad)
      : Dataset({DType::kI32, {1}}, {DType::kI32, {1}}), bad_(bad) {}
  int64_t samples() const override { return 1000; }
  void read(const data::SampleKey& key, std::byte*, std::byte* target) const override {
    if (key.index >= bad_) throw DataError("sample {} is damaged", key.index);
    const auto index = static_cast<int32_t>(key.index);
    std::memcpy(target, &index, sizeof(index));
  }
  int64_t resident_bytes() const override { return 0; }

 private:
  const int64_t bad_;
};

TEST(SomeSamples, AreSpreadOverTheDataAndEndAtABadOne) {
  std::vector<int32_t> seen;
  const auto visit = [&](const std::vector<std::byte>& target) {
    int32_t index = 0;
    std::memcpy(&index, target.data(), sizeof(index));
    seen.push_back(index);
    return seen.size() < 70;
  };
  EXPECT_EQ(read_some(NumberedSamples(1000), visit), 64);
  EXPECT_EQ(seen.front(), 0);
  EXPECT_GT(seen.back(), 950);
  EXPECT_EQ(read_some(NumberedSamples(1000), visit), 6);  // until visit() has enough
  seen.clear();
  EXPECT_EQ(read_some(NumberedSamples(500), visit), 32);
}

// A trace of two steps, each with two lanes, whose every op takes 10 us in the second step and
// 1,000 in the first.
Json trace_of(const run::PreparedRun& prepared) {
  Json events = Json::array();
  double now = 0;
  const auto add = [&](const std::string& name, const char* category, double start, double end) {
    events.push_back(Json::object({{"name", name.substr(0, metrics::Timeline::kMaxName)},
                                   {"cat", category},
                                   {"ph", "X"},
                                   {"pid", 0},
                                   {"tid", 0},
                                   {"ts", start},
                                   {"dur", end - start}}));
  };
  for (int step = 1; step <= 2; ++step) {
    const double begin = now;
    for (int lane = 0; lane < 2; ++lane) {
      const double lane_begin = now;
      for (const graph::Op& op : prepared.graphs->training.ops) {
        const double start = now;
        now += step == 1 ? 1000 : 10;
        const std::string kind = graph::name_of(op.kind);
        add(op.name == kind ? kind : kind + " " + op.name, "op", start, now);
      }
      now += 7;  // sums
      add("wait for gradients of bucket 0", "wait", now, now + 100);
      now += 100;
      add("forward and backward", "step", lane_begin, now);
    }
    now += 5;  // the rest of the step
    add("update my slice", "step", now, now + 30);
    now += 30;
    add("step " + std::to_string(step), "step", begin, now);
  }
  return events;
}

TEST(TimedRun, TimesAreThoseOfLaterSteps) {
  const run::PreparedRun prepared = prepared_for({});
  const std::vector<MeasuredOp> ops = measured_ops(prepared, trace_of(prepared), 3);
  for (const MeasuredOp& op : ops) {
    EXPECT_EQ(op.threads, 3);
    EXPECT_EQ(op.type, "FP32");
    if (op.op == kLaneSum)
      EXPECT_NEAR(op.us, 7, 1e-6);
    else if (op.op == kStepRest)
      EXPECT_NEAR(op.us, 5, 1e-6);
    else if (op.op == "update.ADAMW")
      EXPECT_NEAR(op.us, 30, 1e-6);
    else
      EXPECT_NEAR(op.us, 10, 1e-6) << op.op;
  }
  EXPECT_EQ(ops.size(), work_of_run(prepared, prepared.graphs->training).works.size() + 3);
  // Forecast of the run that was measured: the same ops, lanes, sums and update.
  Hardware here = test_node();
  here.ops = ops;
  here.cpu.cores = 3;
  const StepForecast step =
      forecast_step(prepared, {.hardware = &here, .threads = 3, .spread = kNone});
  const auto count = static_cast<double>(prepared.graphs->training.ops.size());
  EXPECT_NEAR(step.step.middle() * 1e6, 4 * (10 * count + 7) + 5 + 30, 1);
  EXPECT_NEAR(step.measured_share, 1, 1e-9);
  // A trace of another network is rejected.
  Json other = trace_of(prepared);
  Json stranger = other.at(size_t{0});
  stranger["name"] = "linear of_another_network";
  stranger["ts"] = other.at(other.size() - 1).at("ts").get<double>() + 1;
  stranger["dur"] = 1.0;
  other.push_back(stranger);
  EXPECT_THROW(measured_ops(prepared, other, 3), ConfigError);
}

TEST(RunForecast, CountsWhatARunDoesBesideItsSteps) {
  Hardware node = test_node();
  const run::PreparedRun prepared = prepared_for({});
  const Place place{.hardware = &node, .spread = kNone};
  StepForecast step;
  step.step = {1, 2};
  const RunForecast plain = forecast_run(prepared, place, step, {});
  EXPECT_EQ(plain.training_s, (Range{1000, 2000}));
  EXPECT_EQ(plain.epoch_s, (Range{100, 200}));
  EXPECT_NEAR(plain.epochs, 10, 1e-9);
  EXPECT_EQ(plain.checkpoints, 4);
  EXPECT_EQ(plain.kept, 2);
  EXPECT_FALSE(plain.save_s || plain.usd || plain.kwh || plain.interrupted);
  EXPECT_EQ(plain.restarts, 0);

  node.disk_write_gbytes_per_s = plain.checkpoint_bytes / 1e9 / 10;  // 10 s each
  const RunForecast saving = forecast_run(prepared, place, step, {});
  EXPECT_NEAR(saving.total_s.low, plain.total_s.low + 40, 1e-6);

  const RunForecast queued = forecast_run(prepared, place, step, {.walltime_s = 900});
  EXPECT_EQ(queued.restarts, 2);
  EXPECT_GT(queued.total_s.low, saving.total_s.low);
  EXPECT_EQ(forecast_run(prepared, place, step, {.walltime_s = 3}).restarts, -1);

  const RunForecast spot = forecast_run(prepared, place, step, {.interruptions_h = 2});
  ASSERT_TRUE(spot.interrupted);
  // sqrt(2 C M): C = 12.5 s in the middle of its range, M = 1,800 s.
  EXPECT_NEAR(spot.interrupted->every_s, std::sqrt(2 * 12.5 * 1800), 1e-6);
  EXPECT_GT(spot.total_s.low, saving.total_s.low);
  EXPECT_NEAR(spot.interrupted->count, saving.total_s.middle() / 1800, 0.3);
  EXPECT_EQ(spot.uninterrupted_s, saving.total_s);
}

TEST(RunForecast, CostAndEnergyAreThoseOfNodes) {
  Hardware node = test_node();
  node.kind = Hardware::Kind::kGpu;
  node.devices = 8;
  node.watts = 100;
  node.host_watts = 400;
  node.gpu.multiprocessors = 10;
  Price price;
  price.hardware = "node";
  price.provider = "Somebody";
  price.devices = 8;
  price.usd_per_hour = 16;
  Price spot = price;
  spot.market = Price::Market::kSpot;
  spot.usd_per_hour = 8;
  node.prices = {price, spot};
  const run::PreparedRun prepared = prepared_for(collectives::Topology{2, 2});
  StepForecast step;
  step.step = {3.6, 3.6};  // an hour
  const Place place{.hardware = &node, .ranks_per_node = 2, .spread = kNone};
  const RunForecast run = forecast_run(prepared, place, step, {});
  const double hours = run.total_s.high / 3600;
  ASSERT_TRUE(run.usd && run.kwh);
  EXPECT_EQ(run.nodes, 2);
  EXPECT_NEAR(run.usd->high, hours * 2 * 16 / 4, 1e-9);
  EXPECT_NEAR(run.kwh->high, hours * 2 * (100 * 2 + 400.0 / 4) / 1000, 1e-9);
  EXPECT_NEAR(run.kwh->low, 0.75 * run.kwh->high, 1e-9);
  EXPECT_NEAR(run.spot_usd->high, run.usd->high / 2, 1e-9);
  // Only spot instances are taken away; nodes at the user's price may be.
  const RunForecast taken = forecast_run(prepared, place, step, {.interruptions_h = 1});
  EXPECT_EQ(taken.usd, run.usd);
  EXPECT_GT(taken.spot_usd->low, 1.001 * run.spot_usd->low);
  EXPECT_GT(
      forecast_run(prepared, place, step, {.usd_per_hour = 16, .interruptions_h = 1}).usd->low,
      1.001 * 4 * run.usd->low);
  const RunForecast given = forecast_run(prepared, place, step, {.usd_per_hour = 5, .watts = 1000});
  EXPECT_NEAR(given.usd->high, hours * 2 * 5, 1e-9);
  EXPECT_NEAR(given.kwh->high, hours * 2, 1e-9);
}

}  // namespace
}  // namespace lockstep::forecast
