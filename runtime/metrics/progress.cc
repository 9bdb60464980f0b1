#include "runtime/metrics/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/streams.h"
#include "runtime/base/text.h"
#include "runtime/base/time.h"

namespace lockstep::metrics {
namespace {

constexpr double kRedrawMs = 100;
// For lines by time: the pause before the next line is this fraction of the time since the start,
// within limits.
constexpr double kLinePause = 0.25, kMinLinePauseMs = 500, kMaxLinePauseMs = 10'000;
constexpr double kSmoothing = 0.3;  // weight of the newest measurement of speed
// A rank is reported if others wait for it for more than this share of the time.
constexpr double kReportThreshold = 0.05;
constexpr size_t kMaxSlowRanks = 64;

int passed_columns() {
  const char* columns = std::getenv(kProgressColumnsVariable);
  return columns == nullptr ? 0 : parse_as<int>(columns).value_or(0);
}

std::string speed_text(const StepRecord& record) {
  return record.tokens_per_s < 0 ? short_number(record.samples_per_s) + " samples/s"
                                 : short_number(record.tokens_per_s) + " tokens/s";
}

std::string eta_text(double eta_ms) { return eta_ms < 0 ? "?" : format_duration(eta_ms); }

std::string eval_text(const StepRecord& record) {
  std::string text;
  if (record.eval_loss) text += fmt::format("eval loss {:.4f}", *record.eval_loss);
  if (record.eval_accuracy) {
    append_item(text, fmt::format("eval accuracy {:.2f}%", 100 * *record.eval_accuracy), "  ");
  }
  return text;
}

}  // namespace

int terminal_columns(int fd) {
  const char* kind = std::getenv("TERM");
  if (::isatty(fd) != 1 || (kind != nullptr && std::strcmp(kind, "dumb") == 0)) return 0;
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "?";
  if (value >= 1e9) return fmt::format("{:.2f}G", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.{}f}", value, value < 100 ? 1 : 0);
}

std::string format_duration(double milliseconds) {
  const int64_t seconds = std::llround(std::clamp(milliseconds, 0.0, 3.6e12) / 1000);
  const int64_t hours = seconds / 3600, minutes = seconds / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, seconds % 60);
  return fmt::format("{}:{:02}", minutes, seconds % 60);
}

std::string format_progress(const StepRecord& record,
                            int64_t total_steps,
                            double eta_ms,
                            int columns) {
  constexpr int kMinBar = 10, kMaxBar = 40;
  const double done = total_steps > 0 ? static_cast<double>(record.step) / total_steps : 0;
  // The most important field comes first. The first field that does not fit ends the line.
  const std::string fields[] = {
      fmt::format("{}/{}", record.step, total_steps),
      fmt::format("loss {:.4f}", record.loss),
      "ETA " + eta_text(eta_ms),
      speed_text(record),
      fmt::format("lr {:.2e}", record.lr),
  };
  std::string text = fmt::format("{:3.0f}%", 100 * std::clamp(done, 0.0, 1.0));
  for (const std::string& field : fields) {
    if (static_cast<int>(text.size() + 2 + field.size()) > columns) break;
    text += "  " + field;
  }
  const int available =
      columns - static_cast<int>(text.size()) - 3;  // without two brackets and a space
  if (available >= kMinBar) {
    const int width = std::min(available, kMaxBar);
    const int filled = static_cast<int>(std::clamp(done, 0.0, 1.0) * width);
    text = fmt::format("[{}{}] {}",
                       std::string(static_cast<size_t>(filled), '='),
                       std::string(static_cast<size_t>(width - filled), ' '),
                       text);
  }
  if (static_cast<int>(text.size()) > columns)
    text.resize(static_cast<size_t>(std::max(columns, 0)));
  return text;
}

Progress::Progress(const ProgressOptions& options)
    : options_(options), start_ms_(now_ms()), speed_since_step_(options.start_step) {
  LOCKSTEP_CHECK(options.log_every >= 0);
  slowest_.reserve(kMaxSlowRanks);  // so that steps do not allocate
  if (terminal_columns(options.fd) == 0) passed_columns_ = passed_columns();
  terminal_ = passed_columns_ > 0 || terminal_columns(options.fd) > 0;
}

Progress::~Progress() { finish(); }

bool Progress::line_is_due(const StepRecord& record, double now) const {
  return options_.log_every > 0 ? record.step % options_.log_every == 0 : now >= next_draw_ms_;
}

void Progress::update(const StepRecord& record, bool checkpoint) {
  const bool evaluated = record.eval_loss || record.eval_accuracy;
  const double now = now_ms();
  if (training_since_ms_ < 0) training_since_ms_ = now - record.step_ms;
  total_step_ms_ += record.step_ms;
  last_ = record;
  last_drawn_ = false;
  if (!terminal_) {
    count_slowest(record);
    const bool saves = checkpoint && options_.log_every == 0;
    if (evaluated || saves || line_is_due(record, now)) print_line(record, now, checkpoint);
    return;
  }
  if (evaluated) {
    print(fmt::format("step {}: {}\n", record.step, eval_text(record)));
  } else if (now < next_draw_ms_) {
    return;
  }
  draw(record, now);
}

void Progress::print(std::string text) const { standard_error().add(options_.fd, std::move(text)); }

// Steps and what lies between them, such as evaluations, are measured apart: an evaluation every
// 1,000 steps must not be counted for each of the few steps since the last line.
double Progress::remaining_ms(const StepRecord& record, double now) {
  const int64_t steps = record.step - speed_since_step_;
  if (steps > 0) {
    const double measured = (total_step_ms_ - speed_since_total_ms_) / static_cast<double>(steps);
    speed_ms_ = speed_ms_ == 0 ? measured : speed_ms_ + kSmoothing * (measured - speed_ms_);
    speed_since_total_ms_ = total_step_ms_;
    speed_since_step_ = record.step;
  }
  const int64_t done = record.step - options_.start_step;
  if (speed_ms_ == 0 || done <= 0) return -1;
  const double between_ms =
      std::max(0.0, now - training_since_ms_ - total_step_ms_) / static_cast<double>(done);
  const double left = static_cast<double>(std::max<int64_t>(0, options_.total_steps - record.step));
  return left * (speed_ms_ + between_ms);
}

void Progress::draw(const StepRecord& record, double now) {
  const double eta_ms = remaining_ms(record, now);
  // One column stays free, because some terminals wrap a full line.
  const int columns = (passed_columns_ > 0 ? passed_columns_ : terminal_columns(options_.fd)) - 1;
  const std::string line = format_progress(record, options_.total_steps, eta_ms, columns);
  standard_error().add(
      options_.fd,
      passed_columns_ > 0 ? line + "\r" : std::string(OutputQueue::kEraseLine) + line,
      OutputQueue::Kind::kRedraw);
  next_draw_ms_ = now + kRedrawMs;
  line_open_ = true;
  last_drawn_ = true;
}

void Progress::count_slowest(const StepRecord& record) {
  line_ms_ += record.step_ms;
  if (!record.slowest) return;
  const auto same = std::ranges::find_if(
      slowest_, [&](const SlowestRank& rank) { return rank.rank == record.slowest->rank; });
  if (same != slowest_.end()) {
    same->longer_ms += record.slowest->longer_ms;
  } else if (slowest_.size() < kMaxSlowRanks) {
    slowest_.push_back(*record.slowest);
  }
}

// The rank that the others waited for longest since the last line; empty if that was not much.
std::string Progress::slowest_text() const {
  const auto slowest = std::ranges::max_element(slowest_, {}, &SlowestRank::longer_ms);
  if (slowest == slowest_.end() || slowest->longer_ms <= kReportThreshold * line_ms_) return "";
  return fmt::format("  waits for rank {} on {}: {:.0f}%",
                     slowest->rank,
                     slowest->host,
                     100 * slowest->longer_ms / line_ms_);
}

void Progress::print_line(const StepRecord& record, double now, bool checkpoint) {
  const double eta_ms = remaining_ms(record, now);
  std::string line =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  grad norm {:.3f}  {:.1f} ms  {}  ETA {}",
                  record.step,
                  options_.total_steps,
                  record.loss,
                  record.lr,
                  record.grad_norm,
                  record.step_ms,
                  speed_text(record),
                  eta_text(eta_ms));
  line += slowest_text();
  slowest_.clear();
  line_ms_ = 0;
  const std::string evaluation = eval_text(record);
  if (!evaluation.empty()) line += "  " + evaluation;
  if (checkpoint) line += "  checkpoint";
  print(line + "\n");
  next_draw_ms_ =
      now + std::clamp(kLinePause * (now - start_ms_), kMinLinePauseMs, kMaxLinePauseMs);
  last_drawn_ = true;
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (!terminal_) {
    if (!last_drawn_ && options_.log_every == 0) print_line(last_, now_ms(), false);
    return;
  }
  if (!last_drawn_) draw(last_, now_ms());
  if (line_open_) print("\n");
  line_open_ = false;
}

}  // namespace lockstep::metrics
