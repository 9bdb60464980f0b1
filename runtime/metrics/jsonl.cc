#include "runtime/metrics/jsonl.h"

#include <fcntl.h>
#include <fmt/compile.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace lockstep::metrics {
namespace {

// The step of a line `{"step": N, ...}`; -1 if it is not one.
int64_t step_of_line(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\": ";
  int64_t step = -1;
  if (!line.starts_with(kStart) || !line.ends_with('}')) return -1;
  const auto [end, code] =
      std::from_chars(line.data() + kStart.size(), line.data() + line.size(), step);
  return code == std::errc() && (*end == ',' || *end == '}') ? step : -1;
}

// The number of bytes of `text` that a run resumed at `resume_step` keeps: up to the last complete
// record of a step that is not later. A line that is not a record is kept if a record follows it.
size_t kept_bytes(std::string_view text, int64_t resume_step) {
  size_t kept = 0, begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;
    const int64_t step = step_of_line(text.substr(begin, end - begin));
    if (step > resume_step) break;
    begin = end + 1;
    if (step >= 0) kept = begin;
  }
  return kept;
}

// Truncates the file before it is opened for appending.
const std::filesystem::path& cut(const std::filesystem::path& path,
                                 int64_t resume_step,
                                 const std::function<void()>& check) {
  if (!is_there(path)) return path;
  const Descriptor written(open_to_write(path, O_WRONLY));
  size_t kept = 0;
  if (resume_step >= 0) {
    const MappedFile file(path);
    kept = kept_bytes({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()},
                      resume_step);
  }
  if (check) check();
  if (uninterrupted([&] { return ::ftruncate(written.fd, static_cast<off_t>(kept)); }) != 0)
    throw IoError("truncate", path, errno);
  return path;
}

// Whether the step has a line.
bool is_written(const StepRecord& record) {
  constexpr int64_t kAll = 1'000'000;  // up to here each step has a line: about 350 MB
  int64_t every = 1;
  while (record.step > kAll * every) every *= 10;
  return record.step % every == 0 || record.weights_hash || record.eval_loss ||
         !std::isfinite(record.loss) || !std::isfinite(record.grad_norm);
}

// Formats fields one after the other into a buffer that is large enough.
class LineFormatter {
 public:
  explicit LineFormatter(char* out) : out_(out) { *out_++ = '{'; }

  void integer(std::string_view name, int64_t value) {
    key(name);
    out_ = std::to_chars(out_, out_ + 24, value).ptr;
  }
  // The shortest text that reads back as the same number.
  void exact(std::string_view name, double value) {
    key(name);
    if (!finite(value)) return;
    out_ = fmt::format_to(out_, FMT_COMPILE("{}"), value);
  }
  // Rounded to thousandths: for times and rates, whose precision is no better.
  void rounded(std::string_view name, double value) {
    key(name);
    if (!finite(value)) return;
    if (!(std::fabs(value) < 1e15)) {
      out_ = fmt::format_to(out_, FMT_COMPILE("{}"), value);
      return;
    }
    const int64_t thousandths = std::llround(value * 1000);
    const int64_t magnitude = std::abs(thousandths);
    if (thousandths < 0) *out_++ = '-';
    out_ = std::to_chars(out_, out_ + 24, magnitude / 1000).ptr;
    *out_++ = '.';
    const int fraction = static_cast<int>(magnitude % 1000);
    *out_++ = static_cast<char>('0' + fraction / 100);
    *out_++ = static_cast<char>('0' + fraction / 10 % 10);
    *out_++ = static_cast<char>('0' + fraction % 10);
  }
  void hash(std::string_view name, uint64_t value) {
    key(name);
    out_ = fmt::format_to(out_, FMT_COMPILE("\"{:016x}\""), value);
  }
  // A name. Characters that JSON would have to escape become '?'.
  void text(std::string_view name, std::string_view value) {
    key(name);
    *out_++ = '"';
    for (const char c : value.substr(0, kMaxText))
      *out_++ = c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
    *out_++ = '"';
  }
  char* finish() {
    if (nonfinite_) put(", \"nonfinite\": true");
    put("}\n");
    return out_;
  }

 private:
  void put(std::string_view text) {
    std::memcpy(out_, text.data(), text.size());
    out_ += text.size();
  }
  void key(std::string_view name) {
    if (out_[-1] != '{') put(", ");
    *out_++ = '"';
    put(name);
    put("\": ");
  }
  bool finite(double value) {
    if (std::isfinite(value)) return true;
    put("null");
    nonfinite_ = true;
    return false;
  }

  static constexpr size_t kMaxText = 256;

  char* out_;
  bool nonfinite_ = false;
};

}  // namespace

JsonlWriter::JsonlWriter(const std::filesystem::path& path,
                         int64_t resume_step,
                         const std::function<void()>& check)
    : file_(cut(path, resume_step, check), check) {}

void JsonlWriter::append(const StepRecord& record) {
  if (!is_written(record)) {
    ++left_out_steps_;
    left_out_ms_ += record.step_ms;
    if (record.energy) left_out_joules_ += record.energy->joules;
    return;
  }
  LineFormatter line(file_.reserve());
  line.integer("step", record.step);
  line.rounded("time", record.time);
  line.exact("epoch", record.epoch);
  line.integer("samples", record.samples);
  line.exact("loss", record.loss);
  line.exact("lr", record.lr);
  line.exact("grad_norm", record.grad_norm);
  line.rounded("step_ms", record.step_ms);
  if (record.predicted_step_ms > 0) line.rounded("predicted_step_ms", record.predicted_step_ms);
  line.rounded("compute_ms", record.compute_ms);
  line.rounded("comm_exposed_ms", record.comm_exposed_ms);
  line.rounded("straggler_ms", record.straggler_ms);
  line.rounded("data_wait_ms", record.data_wait_ms);
  line.rounded("optimizer_ms", record.optimizer_ms);
  line.rounded("samples_per_s", record.samples_per_s);
  if (!(record.tokens_per_s < 0)) line.rounded("tokens_per_s", record.tokens_per_s);
  if (!(record.mfu < 0)) line.exact("mfu", record.mfu);
  if (record.loss_scale > 0) line.exact("loss_scale", record.loss_scale);
  if (record.loss_scale > 0 || record.skipped_steps > 0)
    line.integer("skipped_steps", record.skipped_steps);
  if (record.failed_checkpoints > 0) line.integer("failed_checkpoints", record.failed_checkpoints);
  if (record.forecast_error) line.exact("forecast_error", *record.forecast_error);
  if (record.slowest) {
    line.integer("slowest_rank", record.slowest->rank);
    line.text("slowest_host", record.slowest->host);
    line.rounded("slowest_longer_ms", record.slowest->longer_ms);
  }
  if (record.devices) {
    for (const DeviceNumber& number : kDeviceNumbers)
      if ((*record.devices).*number.value >= 0)
        line.rounded(number.name, (*record.devices).*number.value);
    for (const DeviceCount& count : kDeviceCounts)
      if ((*record.devices).*count.value >= 0)
        line.integer(count.name, (*record.devices).*count.value);
    if (!record.devices->limits.empty()) line.text("gpu_limits", record.devices->limits);
  }
  if (record.energy) {
    line.rounded("energy_joules", record.energy->joules + std::exchange(left_out_joules_, 0));
    line.rounded("joules_per_step", record.energy->joules_per_step);
    line.rounded("energy_total_joules", record.energy->total_joules);
  }
  if (record.state_digest) line.hash("state_digest", *record.state_digest);
  if (record.weights_hash) line.hash("weights_hash", *record.weights_hash);
  if (record.eval_loss) line.exact("eval_loss", *record.eval_loss);
  if (record.eval_accuracy) line.exact("eval_accuracy", *record.eval_accuracy);
  if (record.eval_top5_accuracy) line.exact("eval_top5_accuracy", *record.eval_top5_accuracy);
  if (record.eval_perplexity) line.exact("eval_perplexity", *record.eval_perplexity);
  for (int i = 0; i < kTaskMetricCount; ++i) {
    const auto& value = record.eval_task[static_cast<size_t>(i)];
    if (value) line.exact(name_of(static_cast<TaskMetric>(i)), *value);
  }
  if (left_out_steps_ > 0) {
    line.integer("left_out_steps", std::exchange(left_out_steps_, 0));
    line.rounded("left_out_ms", std::exchange(left_out_ms_, 0));
  }
  file_.commit(line.finish());
}

double energy_total_in(const std::filesystem::path& path) {
  constexpr std::string_view kKey = "\"energy_total_joules\": ";
  if (!is_there(path)) return 0;
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const size_t at = text.rfind(kKey);
  double joules = 0;
  if (at != std::string_view::npos)
    std::from_chars(text.data() + at + kKey.size(), text.data() + text.size(), joules);
  return joules;
}

}  // namespace lockstep::metrics
