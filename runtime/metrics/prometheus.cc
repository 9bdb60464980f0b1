#include "runtime/metrics/prometheus.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <string_view>
#include <utility>

#include "runtime/base/time.h"
#include "runtime/metrics/environment.h"

namespace lockstep::metrics {
namespace {

// The text of a number as Prometheus reads it.
std::string text_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

// A label's value: backslashes, quotes and line breaks are escaped.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    text += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return text;
}

std::string label(std::string_view name, std::string_view value) {
  return fmt::format("{}=\"{}\"", name, escaped(value));
}

class Exposition {
 public:
  void gauge(std::string_view name, std::string_view help, double value) {
    begin(name, help, "gauge");
    sample(name, "", value);
  }
  void gauge(std::string_view name, std::string_view help, const std::optional<double>& value) {
    if (value) gauge(name, help, *value);
  }
  void counter(std::string_view name, std::string_view help, double value) {
    begin(name, help, "counter");
    sample(name, "", value);
  }
  // Samples with labels follow.
  void begin(std::string_view name, std::string_view help, std::string_view type) {
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  void sample(std::string_view name, const std::string& labels, double value) {
    text_ += labels.empty() ? fmt::format("{} {}\n", name, text_of(value))
                            : fmt::format("{}{{{}}} {}\n", name, labels, text_of(value));
  }
  std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

// Memory of this process that is in RAM; negative: unknown.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = -1;
  file >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

void add_step(Exposition& page, const StepRecord& record) {
  page.gauge("lockstep_last_step_time_seconds",
             "When the newest step ended, in seconds since 1970.",
             record.time);
  page.gauge("lockstep_epoch", "Epochs so far, with fraction.", record.epoch);
  page.counter("lockstep_samples_total",
               "Samples since the beginning of the run.",
               static_cast<double>(record.samples));
  page.gauge("lockstep_loss", "Loss of the newest step.", record.loss);
  page.gauge("lockstep_learning_rate", "Learning rate.", record.lr);
  page.gauge("lockstep_gradient_norm", "L2 norm of the gradient.", record.grad_norm);
  page.gauge("lockstep_step_seconds", "Time of the newest step.", record.step_ms / 1000);
  if (record.predicted_step_ms > 0)
    page.gauge("lockstep_predicted_step_seconds",
               "Time of a step by the forecast.",
               record.predicted_step_ms / 1000);
  const char* const kPhases = "lockstep_phase_seconds";
  page.begin(
      kPhases, "Parts of the newest step on rank 0; stragglers are a part of exchange.", "gauge");
  for (const auto& [name, ms] : {std::pair("compute", record.compute_ms),
                                 std::pair("exchange", record.comm_exposed_ms),
                                 std::pair("stragglers", record.straggler_ms),
                                 std::pair("data", record.data_wait_ms),
                                 std::pair("optimizer", record.optimizer_ms)})
    page.sample(kPhases, label("phase", name), ms / 1000);
  if (record.slowest) {
    const char* const kSlowest = "lockstep_slowest_rank_longer_seconds";
    page.begin(kSlowest, "By how much the slowest rank worked longer in the newest step.", "gauge");
    page.sample(kSlowest,
                label("rank", std::to_string(record.slowest->rank)) + "," +
                    label("host", record.slowest->host),
                record.slowest->longer_ms / 1000);
  }
  page.gauge("lockstep_samples_per_second", "Samples a second, all ranks.", record.samples_per_s);
  if (!(record.tokens_per_s < 0))
    page.gauge("lockstep_tokens_per_second", "Tokens a second, all ranks.", record.tokens_per_s);
  if (!(record.mfu < 0)) page.gauge("lockstep_mfu", "Model FLOPs utilisation.", record.mfu);
  if (record.loss_scale > 0)
    page.gauge("lockstep_loss_scale", "Loss scale of FP16.", record.loss_scale);
  page.counter("lockstep_skipped_steps_total",
               "Steps skipped because a number was not finite.",
               static_cast<double>(record.skipped_steps));
  page.counter("lockstep_failed_checkpoints_total",
               "Checkpoints that this process could not write.",
               static_cast<double>(record.failed_checkpoints));
}

void add_devices(Exposition& page, const DeviceRecord& devices) {
  const auto add = [&](const char* name, double value) {
    if (value >= 0) page.gauge(fmt::format("lockstep_{}", name), "As in metrics.jsonl.", value);
  };
  for (const DeviceNumber& number : kDeviceNumbers) add(number.name, devices.*number.value);
  for (const DeviceCount& count : kDeviceCounts)
    add(count.name, static_cast<double>(devices.*count.value));
}

void add_evaluation(Exposition& page, const StepRecord& record, int64_t step) {
  page.gauge("lockstep_eval_step", "Step of the newest evaluation.", static_cast<double>(step));
  page.gauge("lockstep_eval_loss", "Loss of the newest evaluation.", record.eval_loss);
  page.gauge("lockstep_eval_accuracy", "Its accuracy, 0 to 1.", record.eval_accuracy);
  page.gauge("lockstep_eval_top5_accuracy", "Its top-5 accuracy.", record.eval_top5_accuracy);
  page.gauge("lockstep_eval_perplexity", "Its perplexity.", record.eval_perplexity);
  for (int i = 0; i < kTaskMetricCount; ++i)
    page.gauge(fmt::format("lockstep_{}", name_of(static_cast<TaskMetric>(i))),
               "As in metrics.jsonl.",
               record.eval_task[static_cast<size_t>(i)]);
}

}  // namespace

PrometheusPage::PrometheusPage(Run run) : run_(std::move(run)), start_time_(seconds_since_1970()) {}

void PrometheusPage::begin(int64_t begin_step, int64_t last_step, int64_t planned_bytes) {
  const std::lock_guard lock(mutex_);
  state_.begin_step = begin_step;
  state_.last_step = last_step;
  state_.planned_bytes = planned_bytes;
  state_.last.reset();
}

void PrometheusPage::update(const StepRecord& record) {
  StepRecord now = record;
  const std::lock_guard lock(mutex_);
  if (record.eval_loss) {
    state_.eval_step = record.step;
  } else if (state_.last) {
    now.eval_loss = state_.last->eval_loss;
    now.eval_accuracy = state_.last->eval_accuracy;
    now.eval_top5_accuracy = state_.last->eval_top5_accuracy;
    now.eval_perplexity = state_.last->eval_perplexity;
    now.eval_task = state_.last->eval_task;
  }
  if (state_.last && !record.devices) now.devices = std::move(state_.last->devices);
  if (state_.last && !record.energy) now.energy = state_.last->energy;
  state_.last = std::move(now);
}

void PrometheusPage::set_checkpoint(int64_t step) {
  const std::lock_guard lock(mutex_);
  if (state_.checkpoint && state_.checkpoint->step == step) return;
  state_.checkpoint = {step, seconds_since_1970()};
}

std::string PrometheusPage::text() const {
  State state;
  {
    const std::lock_guard lock(mutex_);
    state = state_;
  }
  Exposition page;
  page.begin("lockstep_info", "The run.", "gauge");
  page.sample("lockstep_info",
              label("name", run_.name) + "," + label("run_dir", run_.run_dir) + "," +
                  label("version", lockstep_version()),
              1);
  page.gauge("lockstep_ranks", "Number of ranks.", run_.ranks);
  if (run_.start > 0)
    page.counter("lockstep_starts_total",
                 "Starts by launch in this run folder, this one included.",
                 static_cast<double>(run_.start));
  page.gauge("lockstep_start_time_seconds",
             "When this process started, in seconds since 1970.",
             start_time_);
  page.gauge("lockstep_step",
             "Steps done since the beginning of the run.",
             static_cast<double>(state.last ? state.last->step : state.begin_step));
  if (state.last_step > 0)
    page.gauge("lockstep_last_step",
               "The step up to which this process trains.",
               static_cast<double>(state.last_step));
  if (state.last) add_step(page, *state.last);
  if (state.last && state.last->eval_loss) add_evaluation(page, *state.last, state.eval_step);
  if (state.last && state.last->devices) add_devices(page, *state.last->devices);
  if (state.last && state.last->energy) {
    page.counter("lockstep_energy_joules_total",
                 "Energy since the beginning of the run, as far as it can be read.",
                 state.last->energy->total_joules);
    page.gauge(
        "lockstep_joules_per_step", "Energy of a step.", state.last->energy->joules_per_step);
  }
  if (state.checkpoint) {
    page.gauge("lockstep_checkpoint_step",
               "Step of the newest checkpoint.",
               static_cast<double>(state.checkpoint->step));
    page.gauge("lockstep_checkpoint_time_seconds",
               "When it was complete, in seconds since 1970.",
               state.checkpoint->time);
  }
  if (state.planned_bytes > 0)
    page.gauge("lockstep_planned_memory_bytes",
               "Memory of a rank by the plan.",
               static_cast<double>(state.planned_bytes));
  if (const double resident = resident_bytes(); resident >= 0)
    page.gauge("process_resident_memory_bytes", "Memory of rank 0 in RAM.", resident);
  return std::move(page).text();
}

}  // namespace lockstep::metrics
