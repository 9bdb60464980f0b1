// Catches: an op that is not moved by its own ratio, or is moved with a range that does not grow
// with the distance of the places; a replay on the hardware that was measured which does not give
// the measured step; waits that count as work; another network or batch that is accepted.
#include <gtest/gtest.h>

#include "launcher/forecast/replay.h"
#include "launcher/forecast/timed_run.h"
#include "runtime/config/parse.h"
#include "runtime/cpu/device.h"
#include "tests/reference/prepared.h"

namespace lockstep::forecast {
namespace {

constexpr const char* kConfig =
    "model { mlp { hidden: 1024 hidden: 1024 } } "
    "data { synthetic { samples: 6400 features: 784 classes: 10 } } "
    "train { global_batch: 64 lanes: 2 steps: 1000 } optimizer { adamw {} } schedule { lr: 0.001 } "
    "execution { precision: FP32 threads: 1 } ";

run::PreparedRun prepared_with(const std::vector<std::string>& set = {}) {
  static const std::unique_ptr<exec::Device> cpu = cpu::make_device();
  return testing::prepare(config::parse_config(kConfig, "test", set),
                          {},
                          run::RunPurpose::kTrain,
                          cpu->ops(),
                          {.may_assume_data = true});
}

Hardware node_with(const std::string& name, double tflops, double gbytes_per_s) {
  Hardware node;
  node.name = name;
  node.kind = Hardware::Kind::kCpu;
  node.fp32_tflops = tflops;
  node.memory_gbytes_per_s = gbytes_per_s;
  node.memory_gib = 64;
  node.cpu.cores = 1;
  return node;
}

constexpr double kOp_us = 100, kSum_us = 10, kRest_us = 20, kUpdate_us = 50;

// A run whose every op takes as long.
TimedRun timed_on(const Hardware& node, const run::PreparedRun& prepared) {
  TimedRun run;
  run.prepared = &prepared;
  run.place.hardware = &node;
  run.place.spread = {0, 0};
  const auto add = [&](const std::string& name,
                       const std::vector<int64_t>& extents,
                       double flops,
                       double bytes,
                       double us) {
    run.ops.push_back({.op = name,
                       .type = "FP32",
                       .threads = 1,
                       .extents = extents,
                       .flops = flops,
                       .bytes = bytes,
                       .us = us});
  };
  for (const OpWork& work : work_of(prepared.graphs->training).works)
    add(graph::name_of(work.kind), work.extents, work.flops(), work.bytes(), kOp_us);
  const double gradients = gradient_bytes(prepared);
  add(kLaneSum, lane_extents(prepared), 0, gradients, kSum_us);
  add(kStepRest, {memory_sharers(prepared)}, 0, gradients, kRest_us);
  add(update_name(prepared), {}, 0, update_bytes(prepared), kUpdate_us);
  const auto count = static_cast<double>(prepared.graphs->training.ops.size());
  run.step_s = run.busy_s = 1e-6 * (2 * (count * kOp_us + kSum_us) + kRest_us + kUpdate_us);
  return run;
}

StepForecast forecast_with(const Replay& replay, const run::PreparedRun& prepared, Place place) {
  place.known = &replay.times;
  return forecast_step(prepared, place);
}

TEST(Replay, OnTheSameHardwareIsTheMeasurement) {
  const Hardware node = node_with("node", 1, 100);
  const run::PreparedRun prepared = prepared_with();
  TimedRun timed = timed_on(node, prepared);
  const Replay same = replay_of(timed, prepared, timed.place);
  EXPECT_EQ(same.matched, static_cast<int64_t>(prepared.graphs->training.ops.size()));
  EXPECT_EQ(same.ops, same.matched);
  EXPECT_NEAR(same.share, 1, 1e-9);
  EXPECT_FALSE(same.whole);
  const StepForecast step = forecast_with(same, prepared, timed.place);
  EXPECT_NEAR(step.step.middle(), timed.step_s, 1e-9);
  EXPECT_NEAR(step.step.high / step.step.low, 1.03 / 0.97, 1e-6);
  // What is between the ops, and the tails of their times, belong to the step.
  timed.busy_s *= 1.1;
  EXPECT_NEAR(
      forecast_with(replay_of(timed, prepared, timed.place), prepared, timed.place).step.middle(),
      timed.busy_s,
      1e-9);
}

TEST(Replay, EachOpIsMovedByItsRatio) {
  const Hardware here = node_with("here", 1, 100), faster = node_with("faster", 4, 100);
  const run::PreparedRun prepared = prepared_with();
  const TimedRun timed = timed_on(here, prepared);
  Place place = timed.place;
  place.hardware = &faster;
  const Replay replay = replay_of(timed, prepared, place);
  const auto ratio = [&](const std::string& name) {
    for (const ReplayedPart& part : replay.parts)
      if (part.name == name) return part.ratio();
    return -1.0;
  };
  EXPECT_NEAR(ratio("update"), 1, 1e-9);  // memory is as fast
  EXPECT_GT(ratio("linear"), 0.2);
  EXPECT_LT(ratio("linear"), 0.9);
  const auto found =
      std::ranges::find_if(replay.parts, [](const auto& part) { return part.name == "linear"; });
  EXPECT_GT(found->there_s.high / found->there_s.low, 1.03 / 0.97 + 0.05);
}

TEST(Replay, WithoutOpsAStepIsMovedAsAWhole) {
  const Hardware here = node_with("here", 1, 100), faster = node_with("faster", 2, 200);
  const run::PreparedRun prepared = prepared_with();
  TimedRun timed = timed_on(here, prepared);
  timed.ops.clear();
  Place place = timed.place;
  place.hardware = &faster;
  const Replay replay = replay_of(timed, prepared, place);
  EXPECT_TRUE(replay.whole);
  const double predicted = forecast_step(prepared, place).step.middle() /
                           forecast_step(prepared, timed.place).step.middle();
  EXPECT_NEAR(forecast_with(replay, prepared, place).step.middle(),
              timed.step_s * predicted,
              timed.step_s * 1e-6);
}

TEST(Replay, AnotherNetworkOrBatchIsRejected) {
  const Hardware node = node_with("node", 1, 100);
  const run::PreparedRun prepared = prepared_with();
  const TimedRun timed = timed_on(node, prepared);
  EXPECT_THROW(replay_of(timed, prepared_with({"train.global_batch=32"}), timed.place),
               ConfigError);
  EXPECT_THROW(replay_of(timed, prepared_with({"model.mlp.hidden=512"}), timed.place), ConfigError);
  // As many samples a lane, in more lanes: the same graph. Buckets, and so the padding of the
  // moments, may differ.
  const run::PreparedRun more = prepared_with({"train.global_batch=128", "train.lanes=4"});
  const StepForecast step = forecast_with(replay_of(timed, more, timed.place), more, timed.place);
  EXPECT_NEAR(step.step.middle(),
              2 * timed.step_s - 1e-6 * (kRest_us + kUpdate_us),
              1e-6 * kUpdate_us * 1e-3);
}

TEST(Replay, StepsCountWithoutTheirWaits) {
  const auto event = [](const char* name, const char* category, double start, double us) {
    return Json::object({{"name", name},
                         {"cat", category},
                         {"ph", "X"},
                         {"pid", 0},
                         {"tid", 0},
                         {"ts", start},
                         {"dur", us}});
  };
  const Json timeline = Json::array({event("step 1", "step", 0, 5000),
                                     event("step 2", "step", 5000, 1000),
                                     event("wait for data", "step", 5000, 100),
                                     event("wait for all ranks", "wait", 5500, 300),
                                     event("step 3", "step", 6000, 2000)});
  TimedRun run;
  add_step_times(timeline, run);
  EXPECT_NEAR(run.step_s, 1500e-6, 1e-12);
  EXPECT_NEAR(run.busy_s, 1300e-6, 1e-12);
}

}  // namespace
}  // namespace lockstep::forecast
