// Catches: text that Prometheus does not read, names of metrics that change, and values that vanish
// with the next step, such as those of an evaluation.

#include "runtime/metrics/prometheus.h"

#include <limits>
#include <set>
#include <sstream>

#include "tests/reference/text_checks.h"
#include "tests/unit/metrics/metrics_fixture.h"

namespace lockstep::metrics {
namespace {

PrometheusPage page_of(const std::string& name) {
  return PrometheusPage({.name = name, .run_dir = "runs/a", .ranks = 4, .start = 2});
}

// Every sample comes after the HELP and TYPE of its name, which come once, and a counter ends in
// _total. Returns the names.
std::set<std::string> names_of(const std::string& text) {
  std::set<std::string> names;
  std::string helped, typed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word, kind, name, type;
    words >> word;
    if (word != "#") {
      EXPECT_EQ(word.substr(0, word.find('{')), typed) << line;
      continue;
    }
    words >> kind >> name >> type;
    if (kind == "HELP") {
      EXPECT_TRUE(names.insert(name).second) << name << " twice";
      helped = name;
    } else {
      EXPECT_EQ(name, helped);
      EXPECT_TRUE(type == "gauge" || type == "counter") << line;
      EXPECT_EQ(type == "counter", name.ends_with("_total")) << line;
      typed = name;
    }
  }
  return names;
}

TEST(Prometheus, BeforeTheFirstStep) {
  PrometheusPage page = page_of("a \"b\\\n");
  const std::string text = page.text();
  EXPECT_CONTAINS(text, "lockstep_info{name=\"a \\\"b\\\\\\n\",run_dir=\"runs/a\",version=\"");
  EXPECT_CONTAINS(text, "\nlockstep_ranks 4\n");
  EXPECT_CONTAINS(text, "\nlockstep_starts_total 2\n");
  EXPECT_CONTAINS(text, "\nlockstep_step 0\n");
  EXPECT_LACKS(text, "lockstep_loss");
  page.begin(40, 100, 1 << 20);
  EXPECT_CONTAINS(page.text(), "\nlockstep_step 40\n");
  EXPECT_CONTAINS(page.text(), "\nlockstep_last_step 100\n");
  EXPECT_CONTAINS(page.text(), "\nlockstep_planned_memory_bytes 1048576\n");
}

TEST(Prometheus, NamesOfAFullStep) {
  PrometheusPage page = page_of("a");
  StepRecord record = sample_record(3);
  record.time = 1'767'225'600.5;
  record.tokens_per_s = 5000;
  record.mfu = 0.5;
  record.slowest = SlowestRank{3, "node1", 1.5};
  record.energy = EnergyRecord{10, 5, 50};
  record.eval_loss = 0.25;
  record.eval_accuracy = 0.75;
  page.begin(0, 10, 1000);
  page.update(record);
  page.set_checkpoint(3);
  const std::string text = page.text();
  EXPECT_EQ(names_of(text),
            (std::set<std::string>{"lockstep_info",
                                   "lockstep_ranks",
                                   "lockstep_starts_total",
                                   "lockstep_start_time_seconds",
                                   "lockstep_step",
                                   "lockstep_last_step",
                                   "lockstep_last_step_time_seconds",
                                   "lockstep_epoch",
                                   "lockstep_samples_total",
                                   "lockstep_loss",
                                   "lockstep_learning_rate",
                                   "lockstep_gradient_norm",
                                   "lockstep_step_seconds",
                                   "lockstep_phase_seconds",
                                   "lockstep_slowest_rank_longer_seconds",
                                   "lockstep_samples_per_second",
                                   "lockstep_tokens_per_second",
                                   "lockstep_mfu",
                                   "lockstep_skipped_steps_total",
                                   "lockstep_failed_checkpoints_total",
                                   "lockstep_eval_step",
                                   "lockstep_eval_loss",
                                   "lockstep_eval_accuracy",
                                   "lockstep_energy_joules_total",
                                   "lockstep_joules_per_step",
                                   "lockstep_checkpoint_step",
                                   "lockstep_checkpoint_time_seconds",
                                   "lockstep_planned_memory_bytes",
                                   "process_resident_memory_bytes"}));
  EXPECT_CONTAINS(text, "\nlockstep_last_step_time_seconds 1767225600.5\n");
  EXPECT_CONTAINS(text, "\nlockstep_step_seconds 0.0123456\n");
  EXPECT_CONTAINS(text, "\nlockstep_phase_seconds{phase=\"optimizer\"} 0.0018\n");
  EXPECT_CONTAINS(text,
                  "\nlockstep_slowest_rank_longer_seconds{rank=\"3\",host=\"node1\"} 0.0015\n");
}

TEST(Prometheus, WhatOnlySomeStepsHaveStays) {
  PrometheusPage page = page_of("a");
  StepRecord record = sample_record(3);
  record.energy = EnergyRecord{10, 5, 50};
  record.devices.emplace().power_w = 300;
  record.eval_loss = 0.25;
  page.update(record);
  page.update(sample_record(4));
  record = sample_record(5);
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  page.update(record);
  const std::string text = page.text();
  names_of(text);
  EXPECT_CONTAINS(text, "\nlockstep_step 5\n");
  EXPECT_CONTAINS(text, "\nlockstep_loss NaN\n");
  EXPECT_CONTAINS(text, "\nlockstep_gradient_norm +Inf\n");
  EXPECT_CONTAINS(text, "\nlockstep_eval_step 3\n");
  EXPECT_CONTAINS(text, "\nlockstep_eval_loss 0.25\n");
  EXPECT_CONTAINS(text, "\nlockstep_energy_joules_total 50\n");
  EXPECT_CONTAINS(text, "\nlockstep_gpu_power_w 300\n");
  EXPECT_LACKS(text, "slowest_rank") << "none was slow in the newest step";
}

}  // namespace
}  // namespace lockstep::metrics
