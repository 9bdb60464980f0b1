// Energy of runs on machines that can be read and that cannot. Catches: a machine or a GPU that
// counts once for each of its ranks, energy from before the first step, a total that a resumed run
// begins anew, and energy that is not read taken for zero.
#include "runtime/train/energy_watch.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/file.h"
#include "tests/reference/fake_powercap.h"
#include "tests/reference/runs.h"
#include "tests/reference/text_checks.h"

namespace lockstep::train {
namespace {

using testing::FakePowercap;

class Monitor : public exec::DeviceMonitor {
 public:
  explicit Monitor(std::string description) : description_(std::move(description)) {}
  exec::DeviceState state(double) override { return now; }
  void refresh() override { ++refreshed; }
  std::string description() const override { return description_; }
  std::string words_for_limits(uint64_t) const override { return ""; }
  std::string why_no_energy() const override { return "no counter"; }
  exec::DeviceState now;
  int refreshed = 0;

 private:
  std::string description_;
};

// What rank 0 has at the end.
struct Outcome {
  std::optional<metrics::EnergyRecord> record;
  EnergyReport report;
};

// Two ranks and 10 steps, in which both GPUs use 40 J, from 5 J on, and the package 100 J.
Outcome watch_two(const std::filesystem::path& powercap,
                  const std::vector<std::string>& gpus,
                  exec::DeviceState gpu,
                  FakePowercap* files = nullptr) {
  Outcome outcome;
  const std::vector<std::string> hosts = {"ada", "ada"};
  testing::run_ranks(2, [&](collectives::Communicator& communicator) {
    const int rank = communicator.rank();
    std::optional<Monitor> monitor;
    if (!gpus.empty()) monitor.emplace(gpus[static_cast<size_t>(rank)]);
    if (monitor) monitor->now = gpu;
    EnergyWatch watch(communicator, monitor ? &*monitor : nullptr, hosts, powercap, 1000);
    for (int step = 0; step < 10; ++step) watch.count_step();
    if (monitor && gpu.energy_j >= 0) monitor->now.energy_j = gpu.energy_j + 40;
    if (files != nullptr && rank == 0) files->set("intel-rapl:0", 100'000'000);
    const auto record = watch.gather(true);
    EXPECT_EQ(record.has_value(), watch.report().joules_per_step >= 0);
    if (rank == 0) outcome = {record, watch.report()};
  });
  return outcome;
}

TEST(EnergyWatch, AMachineCountsOnceAndEachGpuToo) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  exec::DeviceState gpu;
  gpu.energy_j = 5;
  Outcome both = watch_two(files.path(), {"GPU 0", "GPU 1"}, gpu, &files);
  ASSERT_TRUE(both.record);
  EXPECT_EQ(both.record->joules, 180);
  EXPECT_EQ(both.record->joules_per_step, 18);
  EXPECT_EQ(both.record->total_joules, 1180);
  EXPECT_EQ(both.report.total_j, 1180);
  EXPECT_EQ(both.report.cpu_j, 100);
  EXPECT_EQ(both.report.gpu_j, 80);
  EXPECT_EQ(both.report.joules_per_step, 18);
  EXPECT_EQ(both.report.sources, "CPUs of 1 host (RAPL), 2 GPUs (NVML)");
  EXPECT_EQ(both.report.not_readable, "");
  EXPECT_EQ(words_for(both.report), ", 1180 J (18 J a step)");
  files.set("intel-rapl:0", 0);
  const Outcome shared = watch_two(files.path(), {"GPU 0", "GPU 0"}, gpu, &files);
  EXPECT_EQ(shared.report.gpu_j, 40);
  EXPECT_EQ(shared.report.sources, "CPUs of 1 host (RAPL), 1 GPU (NVML)");
}

TEST(EnergyWatch, WhatCannotBeReadIsNamed) {
  const testing::TemporaryFolder none;
  const std::string cpus = "CPUs of ada: cannot read '" + none.path().string() +
                           "': it has no RAPL counter of a package";
  Outcome outcome = watch_two(none.path(), {}, {});
  EXPECT_FALSE(outcome.record);
  EXPECT_EQ(outcome.report.not_readable, cpus);
  EXPECT_EQ(words_for(outcome.report), "");
  Json json;
  add_energy(json, outcome.report);
  EXPECT_EQ(json.names(), (std::vector<std::string>{"energy_total_joules", "energy_not_readable"}))
      << "the total of earlier starts";

  outcome = watch_two(none.path(), {"GPU 0", "GPU 1"}, {});
  EXPECT_FALSE(outcome.record);
  EXPECT_EQ(outcome.report.not_readable, cpus + "; GPU of rank 0: no counter; and 1 more");

  exec::DeviceState gpu;
  gpu.energy_j = 5;
  gpu.energy_from_power = 1;
  outcome = watch_two(none.path(), {"GPU 0", "GPU 1"}, gpu);
  ASSERT_TRUE(outcome.record);
  EXPECT_EQ(outcome.record->joules, 80);
  EXPECT_EQ(outcome.report.sources, "2 GPUs (NVML's power, added up over time)");
  json = Json();
  add_energy(json, outcome.report);
  EXPECT_EQ(json.names(),
            (std::vector<std::string>{"energy_total_joules",
                                      "joules_per_step",
                                      "energy_gpu_joules",
                                      "energy_sources",
                                      "energy_not_readable"}));
}

TEST(EnergyWatch, LinesWithEnergyAreNotMoreThanTenASecond) {
  FakePowercap files;
  files.add("intel-rapl:0", "package-0");
  const auto self = collectives::make_self_communicator();
  const std::string host = "ada";
  EnergyWatch watch(*self, nullptr, {&host, 1}, files.path(), 0);
  EXPECT_FALSE(watch.is_due(1, 2, false));
  EXPECT_TRUE(watch.is_due(2, 2, false));
  EXPECT_FALSE(watch.is_due(4, 2, false)) << "too soon";
  EXPECT_TRUE(watch.is_due(5, 2, true)) << "the last step";
  EXPECT_FALSE(watch.is_due(6, 0, false)) << "too soon";
}

TEST(EnergyWatch, GpusAreReadAnewAtTheEndsAlone) {
  const testing::TemporaryFolder none;
  const auto self = collectives::make_self_communicator();
  const std::string host = "ada";
  Monitor monitor("GPU 0");
  monitor.now.energy_j = 5;
  EnergyWatch watch(*self, &monitor, {&host, 1}, none.path(), 0);
  EXPECT_EQ(monitor.refreshed, 1);
  watch.count_step();
  monitor.now.energy_j = 7;
  EXPECT_EQ(watch.gather(false)->joules, 2);
  EXPECT_EQ(monitor.refreshed, 1);
  monitor.now.energy_j = exec::DeviceState::kUnknown;  // it does not answer
  EXPECT_EQ(watch.gather(true)->joules, 0);
  EXPECT_EQ(monitor.refreshed, 2);
  EXPECT_EQ(watch.report().total_j, 2);
}

// The lines of metrics.jsonl that have energy.
std::vector<Json> energy_lines(const std::filesystem::path& run) {
  std::vector<Json> lines;
  std::istringstream text(read_file(run / "metrics.jsonl", 1 << 20));
  for (std::string line; std::getline(text, line);)
    if (line.find("energy") != std::string::npos) lines.push_back(Json::parse(line));
  return lines;
}

// A step takes 3 J: 0.375 J for each of 8 lanes.
TEST(EnergyWatch, AResumedRunContinuesItsTotal) {
  testing::TemporaryFolder folder;
  FakePowercap files;
  files.add("intel-rapl:0", "package-0", 100'000'000);
  uint64_t energy_uj = 90'000'000;  // it starts again in both parts of the run
  files.set("intel-rapl:0", energy_uj);
  testing::Training training{testing::mlp_config(), 1, testing::until(20)};
  training.powercap = files.path();
  training.meddle = [&](const testing::RankUnderTest& rank) {
    rank.backend.on_lane = [&](const graph::LaneContext&) {
      energy_uj = (energy_uj + 375'000) % 100'000'000;
      files.set("intel-rapl:0", energy_uj);
    };
  };
  const TrainResult first = testing::train_in(folder.path(), training);
  EXPECT_DOUBLE_EQ(first.energy.total_j, 60);
  EXPECT_DOUBLE_EQ(first.energy.joules_per_step, 3);
  training.options = testing::resumed();
  const TrainResult second = testing::train_in(folder.path(), training);
  EXPECT_DOUBLE_EQ(second.energy.total_j, 120);
  EXPECT_DOUBLE_EQ(second.energy.cpu_j, 60);
  EXPECT_DOUBLE_EQ(second.energy.joules_per_step, 3);
  const std::vector<Json> lines = energy_lines(folder.path());
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines.back().at("step"), 40);
  EXPECT_DOUBLE_EQ(lines.back().at("energy_total_joules").get<double>(), 120);
  double sum = 0;
  for (const Json& line : lines) {
    sum += line.at("energy_joules").get<double>();
    EXPECT_DOUBLE_EQ(line.at("joules_per_step").get<double>(), 3);
  }
  EXPECT_DOUBLE_EQ(sum, 120);
  training.options = testing::until(20);
  const testing::TemporaryFolder other;
  EXPECT_DOUBLE_EQ(testing::train_in(other.path(), training).energy.total_j, 60);
}

TEST(EnergyWatch, ARunThatCannotReadItHasNoneInItsLines) {
  testing::TemporaryFolder folder;
  testing::Training training{testing::mlp_config(), 2, testing::until(5)};
  training.powercap = folder.path() / "nowhere";
  const TrainResult result = testing::train_in(folder.path() / "run", training);
  EXPECT_EQ(result.energy.total_j, -1);
  EXPECT_CONTAINS(result.energy.not_readable, "nowhere': No such file or directory");
  EXPECT_TRUE(energy_lines(folder.path() / "run").empty());
}

}  // namespace
}  // namespace lockstep::train
