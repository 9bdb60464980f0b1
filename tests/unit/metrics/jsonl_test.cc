// metrics.jsonl: names and numbers, resuming, and what a line costs.

#include "runtime/metrics/jsonl.h"

#include <cmath>
#include <limits>
#include <sstream>

#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/time.h"
#include "tests/unit/metrics/metrics_fixture.h"

namespace lockstep::metrics {
namespace {

class Jsonl : public ::testing::Test {
 protected:
  void append(std::initializer_list<int64_t> steps, int64_t resume_step) {
    JsonlWriter writer(path_, resume_step);
    for (int64_t step : steps) writer.append(sample_record(step));
  }
  Json only_line(const StepRecord& record) {
    {
      JsonlWriter writer(path_, -1);
      writer.append(record);
    }
    const std::string text = text_of(path_);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
    EXPECT_EQ(text.back(), '\n');
    return Json::parse(text);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> result;
    std::istringstream text(text_of(path_));
    for (std::string line; std::getline(text, line);) {
      result.push_back(Json::parse(line).at("step").get<int64_t>());
    }
    return result;
  }

  TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "metrics.jsonl";
};

// The names are an interface: catches any that is changed, dropped or written where it does not
// apply.
TEST_F(Jsonl, NamesOfAPlainStep) {
  EXPECT_EQ(only_line(sample_record(1)).names(),
            (std::vector<std::string>{"step",
                                      "time",
                                      "epoch",
                                      "samples",
                                      "loss",
                                      "lr",
                                      "grad_norm",
                                      "step_ms",
                                      "compute_ms",
                                      "comm_exposed_ms",
                                      "straggler_ms",
                                      "data_wait_ms",
                                      "optimizer_ms",
                                      "samples_per_s"}));
}

TEST_F(Jsonl, NamesOfAFullStep) {
  StepRecord record = sample_record(3);
  record.tokens_per_s = 5000;
  record.mfu = 0.5;
  record.slowest = SlowestRank{3, "no\"de\n4", 1.25};
  record.weights_hash = 0x00ab;
  record.eval_loss = 0.25;
  record.eval_accuracy = 0.75;
  const Json json = only_line(record);
  EXPECT_EQ(
      json.names(),
      (std::vector<std::string>{
          "step",         "time",         "epoch",        "samples",           "loss",
          "lr",           "grad_norm",    "step_ms",      "compute_ms",        "comm_exposed_ms",
          "straggler_ms", "data_wait_ms", "optimizer_ms", "samples_per_s",     "tokens_per_s",
          "mfu",          "slowest_rank", "slowest_host", "slowest_longer_ms", "weights_hash",
          "eval_loss",    "eval_accuracy"}));
  EXPECT_EQ(json["slowest_rank"], 3);
  EXPECT_EQ(json["slowest_host"], "no?de?4");
  EXPECT_EQ(json["slowest_longer_ms"], 1.25);
  EXPECT_EQ(json["weights_hash"], "00000000000000ab");
  EXPECT_EQ(json["eval_accuracy"], 0.75);
}

TEST_F(Jsonl, NamesOfGpus) {
  StepRecord record = sample_record(3);
  record.devices.emplace();
  EXPECT_EQ(only_line(record).names().back(), "samples_per_s") << "nothing is known";
  for (const DeviceNumber& number : kDeviceNumbers) (*record.devices).*number.value = 0.5;
  for (const DeviceCount& count : kDeviceCounts) (*record.devices).*count.value = 4'000'000'000;
  record.devices->limits = "power cap";
  const Json json = only_line(record);
  std::vector<std::string> names = json.names();
  names.erase(names.begin(), std::find(names.begin(), names.end(), "gpu_clock_mhz_min"));
  EXPECT_EQ(names,
            (std::vector<std::string>{"gpu_clock_mhz_min",
                                      "gpu_clock_mhz_max",
                                      "gpu_max_clock_mhz",
                                      "gpu_memory_clock_mhz_min",
                                      "gpu_power_w",
                                      "gpu_temperature_c_max",
                                      "gpu_clock_mhz_min_rank",
                                      "gpu_temperature_c_max_rank",
                                      "gpu_memory_used_bytes",
                                      "gpu_memory_beside_plan_bytes",
                                      "gpu_ecc_corrected",
                                      "gpu_ecc_uncorrected",
                                      "gpu_limited_ranks",
                                      "gpu_xid",
                                      "gpu_xid_rank",
                                      "gpu_limits"}));
  EXPECT_EQ(json["gpu_power_w"], 0.5);
  EXPECT_EQ(json["gpu_memory_used_bytes"].get<int64_t>(), 4'000'000'000);
  EXPECT_EQ(json["gpu_limits"], "power cap");
}

TEST_F(Jsonl, ForecastsStandBesideMeasurements) {
  StepRecord record = sample_record(3);
  record.predicted_step_ms = 11.5;
  record.forecast_error = -0.0625;
  const Json json = only_line(record);
  EXPECT_EQ(json["predicted_step_ms"].get<double>(), 11.5);
  EXPECT_EQ(json["forecast_error"].get<double>(), -0.0625);
  EXPECT_EQ(json.names().size(), only_line(sample_record(3)).names().size() + 2);
}

TEST_F(Jsonl, NamesOfEnergy) {
  StepRecord record = sample_record(3);
  record.energy = EnergyRecord{12.5, 2.5, 1012.5};
  const Json json = only_line(record);
  EXPECT_EQ(json["energy_joules"].get<double>(), 12.5);
  EXPECT_EQ(json["joules_per_step"].get<double>(), 2.5);
  EXPECT_EQ(json["energy_total_joules"].get<double>(), 1012.5);
  EXPECT_EQ(json.names().size(), only_line(sample_record(3)).names().size() + 3);
}

TEST_F(Jsonl, TheNewestTotalOfEnergyIsFound) {
  EXPECT_EQ(energy_total_in(path_), 0) << "no file";
  append({1}, -1);
  EXPECT_EQ(energy_total_in(path_), 0) << "no energy";
  {
    JsonlWriter writer(path_, 1);
    for (int64_t step = 2; step <= 9; ++step) {
      StepRecord record = sample_record(step);
      if (step < 8) record.energy = EnergyRecord{1, 1, 100.5 + static_cast<double>(step)};
      writer.append(record);
    }
  }
  EXPECT_EQ(energy_total_in(path_), 107.5);
  JsonlWriter(path_, 4).finish();
  EXPECT_EQ(energy_total_in(path_), 104.5);
}

// Catches energy that is lost with lines that are left out.
TEST_F(Jsonl, EnergyOfStepsThatAreLeftOut) {
  JsonlWriter writer(path_, -1);
  for (const int64_t step : {1'000'001, 1'000'002, 1'000'010}) {
    StepRecord record = sample_record(step);
    record.energy = EnergyRecord{10, 5, 50};
    writer.append(record);
  }
  writer.flush();
  EXPECT_EQ(Json::parse(text_of(path_)).at("energy_joules").get<double>(), 30);
}

// Loss, rate and norm to the last bit, so that two runs can be compared; times and rates to a
// thousandth.
TEST_F(Jsonl, Numbers) {
  StepRecord record = sample_record(3);
  record.loss = 0.1 + 0.2;
  record.lr = 5e-324;
  record.grad_norm = 1.7976931348623157e308;
  record.data_wait_ms = 0.9996;
  record.optimizer_ms = -0.0126;
  record.samples_per_s = 1e18;
  record.samples = std::numeric_limits<int64_t>::max();
  record.time = 1'767'225'600.1234;
  const Json json = only_line(record);
  EXPECT_EQ(json["loss"].get<double>(), record.loss);
  EXPECT_EQ(json["lr"].get<double>(), record.lr);
  EXPECT_EQ(json["grad_norm"].get<double>(), record.grad_norm);
  EXPECT_EQ(json["samples"].get<int64_t>(), record.samples);
  EXPECT_EQ(json["time"].get<double>(), 1'767'225'600.123);
  EXPECT_EQ(json["step_ms"].get<double>(), 12.346);
  EXPECT_EQ(json["data_wait_ms"].get<double>(), 1.0);
  EXPECT_EQ(json["optimizer_ms"].get<double>(), -0.013);
  EXPECT_EQ(json["samples_per_s"].get<double>(), 1e18);
  EXPECT_FALSE(json.contains("nonfinite"));
}

TEST_F(Jsonl, NonFiniteIsNull) {
  StepRecord record = sample_record(3);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.step_ms = std::numeric_limits<double>::infinity();
  const Json json = only_line(record);
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["step_ms"].is_null());
  EXPECT_EQ(json["grad_norm"], 1.25);
  EXPECT_EQ(json["nonfinite"], true);
}

TEST_F(Jsonl, ResumeCutsLaterSteps) {
  append({1, 2, 3, 4, 5}, -1);
  append({4, 5, 6}, 3);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  append({}, 6);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  append({1}, -1);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1}));
}

// Whatever a crash left at the end: the resumed file holds whole lines only.
TEST_F(Jsonl, ResumeCutsATornLine) {
  append({1, 2, 3}, -1);
  const std::string whole = text_of(path_);
  const size_t second_end = whole.find('\n', whole.find('\n') + 1) + 1;
  for (size_t size = second_end; size < whole.size(); ++size) {
    std::ofstream(path_, std::ios::trunc) << whole.substr(0, size);
    append({3}, 3);
    EXPECT_EQ(text_of(path_), whole) << size;
  }
  std::ofstream(path_, std::ios::app) << std::string(100, '\0') << '\n';
  append({4}, 3);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST_F(Jsonl, LinesAppearWhenTheBufferIsFullAndOnFlush) {
  JsonlWriter writer(path_, -1);
  writer.append(sample_record(1));
  EXPECT_EQ(fs::file_size(path_), 0u);
  writer.flush();
  EXPECT_EQ(steps(), (std::vector<int64_t>{1}));
  for (int64_t step = 2; step < 1000; ++step) writer.append(sample_record(step));
  EXPECT_GE(fs::file_size(path_), 65536u);
  writer.flush();
  EXPECT_EQ(steps().size(), 999u);
}

TEST_F(Jsonl, LinesAppearWithinASecond) {
  JsonlWriter writer(path_, -1);
  writer.append(sample_record(1));
  ::usleep(1'050'000);
  writer.append(sample_record(2));
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
}

TEST_F(Jsonl, AppendDoesNotAllocate) {
  JsonlWriter writer(path_, -1);
  StepRecord record = sample_record(1);
  record.tokens_per_s = 123456.7;
  record.mfu = 0.123456789;
  record.weights_hash = ~0ull;
  record.eval_loss = 1.0 / 3;
  record.eval_accuracy = std::numeric_limits<double>::quiet_NaN();
  const uint64_t before = allocations();
  for (int i = 0; i < 1000; ++i) {
    record.step += 1;
    record.loss = std::sqrt(static_cast<double>(i));
    writer.append(record);
  }
  EXPECT_EQ(allocations() - before, 0u);
}

// The target is 1.5 us; the limit allows for sanitizers and busy machines. Prints what it measured.
TEST_F(Jsonl, AppendIsCheap) {
  JsonlWriter writer(path_, -1);
  StepRecord record = sample_record(1);
  record.tokens_per_s = 123456.7;
  record.mfu = 0.123456789;
  double best_us = 1e9;
  for (int repeat = 0; repeat < 20; ++repeat) {
    constexpr int kLines = 200;  // less than the buffer holds
    writer.flush();
    const double start = now_ms();
    for (int i = 0; i < kLines; ++i) {
      record.step += 1;
      record.loss = 1.0 / static_cast<double>(record.step);
      writer.append(record);
    }
    best_us = std::min(best_us, (now_ms() - start) * 1000 / kLines);
  }
  std::printf("append: %.3f us\n", best_us);
  RecordProperty("append_us", std::to_string(best_us));
  EXPECT_LT(best_us, 30);
}

TEST_F(Jsonl, WhatCanNeverBeWrittenIsAnError) {
  EXPECT_THROW(JsonlWriter(folder_.path() / "absent" / "metrics.jsonl", -1), IoError);
  std::ofstream(folder_.path() / "mine") << "mine";
  fs::create_symlink("mine", path_);
  for (const int64_t resume_step : {-1, 5}) EXPECT_THROW(JsonlWriter(path_, resume_step), IoError);
  EXPECT_EQ(text_of(folder_.path() / "mine"), "mine");
}

// A long run has fewer lines: all of the first million steps, then every 10th, every 100th, ...
TEST_F(Jsonl, LongRunsAreThinned) {
  {
    JsonlWriter writer(path_, -1);
    const auto write = [&](int64_t first, int64_t last) {
      for (int64_t step = first; step <= last; ++step) writer.append(sample_record(step));
    };
    write(999'998, 1'000'021);
    StepRecord special = sample_record(1'000'022);
    special.weights_hash = 1;
    writer.append(special);
    special = sample_record(1'000'023);
    special.eval_loss = 1;
    writer.append(special);
    special = sample_record(1'000'024);
    special.grad_norm = std::numeric_limits<double>::infinity();
    writer.append(special);
    write(9'999'985, 10'000'101);
  }
  EXPECT_EQ(steps(),
            (std::vector<int64_t>{999'998,
                                  999'999,
                                  1'000'000,
                                  1'000'010,
                                  1'000'020,
                                  1'000'022,
                                  1'000'023,
                                  1'000'024,
                                  9'999'990,
                                  10'000'000,
                                  10'000'100}));
  std::istringstream text(text_of(path_));
  int64_t lines = 0, left_out = 0;
  double left_out_ms = 0;
  for (std::string line; std::getline(text, line); ++lines) {
    const Json json = Json::parse(line);
    left_out += json.value<int64_t>("left_out_steps", 0);
    left_out_ms += json.value<double>("left_out_ms", 0);
  }
  EXPECT_EQ(lines + left_out, 27 + 117 - 1) << "10,000,101 comes after the last line";
  EXPECT_NEAR(left_out_ms, 12.3456 * static_cast<double>(left_out), 0.01);
}

// If a run goes on, lines after the resumed step go, whatever lies between them.
TEST_F(Jsonl, AThinnedFileIsResumed) {
  append({999'999, 1'000'010, 1'000'020}, -1);
  append({1'000'016, 1'000'030}, 1'000'015);
  EXPECT_EQ(steps(), (std::vector<int64_t>{999'999, 1'000'010, 1'000'030}));
}

}  // namespace
}  // namespace lockstep::metrics
