#include "runtime/checkpoint/run/run_clock.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstring>

#include "runtime/base/log.h"
#include "runtime/base/time.h"

namespace lockstep::checkpoint {
namespace {

// Bytes that a slow disk writes per second.
constexpr double kSlowBytesPerS = 50e6;

// The end of a Slurm job, as now_ms() counts.
std::optional<double> slurm_end_ms(const char* text) {
  if (text == nullptr) return std::nullopt;
  int64_t end_s = 0;
  const char* const last = text + std::strlen(text);
  const auto [rest, code] = std::from_chars(text, last, end_s);
  if (code != std::errc() || rest != last) {
    log_warn("ignoring SLURM_JOB_END_TIME, which is '{}' instead of seconds since 1970", text);
    return std::nullopt;
  }
  const double now_s =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now_ms() + (static_cast<double>(end_s) - now_s) * 1000;
}

}  // namespace

RunClockOptions run_clock_options(const RunConfig& config,
                                  double checkpoint_bytes,
                                  const std::function<const char*(const char*)>& environment) {
  RunClockOptions options = {.every_s = config.checkpoint.every_minutes * 60,
                             .end_ms = slurm_end_ms(environment("SLURM_JOB_END_TIME")),
                             .margin_s = config.checkpoint.walltime_margin_s,
                             .save_s = 1 + checkpoint_bytes / kSlowBytesPerS};
  if (config.train.walltime_minutes > 0) {
    const double end_ms = process_begin_ms + config.train.walltime_minutes * 60'000;
    options.end_ms = std::min(end_ms, options.end_ms.value_or(end_ms));
  }
  return options;
}

RunClock::RunClock(const RunClockOptions& options)
    : options_(options), last_check_ms_(now_ms()), last_save_ms_(last_check_ms_) {
  if (options.end_ms)
    log_info("the run has {:.1f} minutes: it will stop with a checkpoint before they end",
             (*options.end_ms - last_check_ms_) / 60'000);
}

bool RunClock::must_stop() {
  const double now = now_ms();
  longest_s_ = std::max(longest_s_, (now - last_check_ms_) / 1000);
  last_check_ms_ = now;
  if (!options_.end_ms) return false;
  const double left_s = (*options_.end_ms - now) / 1000;
  const double needed_s = longest_s_ + options_.save_s + options_.margin_s;
  if (left_s > needed_s) return false;
  if (!stopping_)
    log_info(
        "stopping: {:.1f} s are left of the run's time; the next step may take {:.1f} s "
        "and its checkpoint {:.1f} s",
        left_s,
        longest_s_,
        options_.save_s);
  stopping_ = true;
  return true;
}

bool RunClock::save_due() const {
  return options_.every_s > 0 && now_ms() - last_save_ms_ >= options_.every_s * 1000;
}

void RunClock::save_begins() { last_save_ms_ = now_ms(); }

void RunClock::save_took(double seconds) {
  options_.save_s = save_measured_ ? std::max(options_.save_s, seconds) : seconds;
  save_measured_ = true;
}

}  // namespace lockstep::checkpoint
