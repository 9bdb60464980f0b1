#include "launcher/run/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/base/file.h"

namespace lockstep::launcher {
namespace {

constexpr size_t kTailBytes = 512;
constexpr size_t kChunk = size_t{4} << 20;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// What is left of a line.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool take(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  void skip_blanks() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  // A text in quotation marks.
  std::optional<std::string_view> text() {
    if (!take("\"")) return std::nullopt;
    const size_t end = rest_.find('"');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    if (found.find('\\') != std::string_view::npos) return std::nullopt;
    return found;
  }
  // null is NaN.
  std::optional<double> number() {
    if (take("null")) return kNone;
    if (take("true")) return 1;
    if (take("false")) return 0;
    double value = 0;
    const auto [end, code] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (code != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }
  bool starts_text() const { return rest_.starts_with('"'); }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// Reads up to `bytes` from `offset`; fewer at the end of the file.
std::string read_at(const std::filesystem::path& path, int fd, uint64_t offset, size_t bytes) {
  std::string text(bytes, '\0');
  size_t got = 0;
  while (got < bytes) {
    const auto count = uninterrupted([&] {
      return ::pread(fd, text.data() + got, bytes - got, static_cast<off_t>(offset + got));
    });
    if (count < 0) throw IoError("read", path, errno);
    if (count == 0) break;
    got += static_cast<size_t>(count);
  }
  text.resize(got);
  return text;
}

}  // namespace

std::optional<MetricsLine> parse_metrics_line(std::string_view line) {
  MetricsLine parsed;
  Scanner scanner(line);
  if (!scanner.take("{")) return std::nullopt;
  do {
    scanner.skip_blanks();
    const auto name = scanner.text();
    if (!name || !scanner.take(":")) return std::nullopt;
    scanner.skip_blanks();
    if (scanner.starts_text()) {
      const auto text = scanner.text();
      if (!text) return std::nullopt;
      parsed.texts.emplace_back(*name, *text);
      continue;
    }
    const auto number = scanner.number();
    if (!number) return std::nullopt;
    if (*name == "step" && *number >= 0 && *number < 9e18)
      parsed.step = static_cast<int64_t>(*number);
    parsed.numbers.emplace_back(*name, *number);
  } while (scanner.take(","));
  if (!scanner.take("}") || !scanner.empty() || parsed.step < 0) return std::nullopt;
  return parsed;
}

bool MetricsFile::update() {
  bool changed = false;
  if (!is_continued()) {
    changed = lines_ > 0;
    *this = MetricsFile(path_);
  }
  if (!is_there(path_)) return changed;
  uint64_t bytes = 0;
  const Descriptor file(open_regular(path_, bytes));
  std::string text;  // what no line break has ended yet
  for (uint64_t offset = read_bytes_;;) {
    const std::string chunk = read_at(path_, file.fd, offset, kChunk);
    if (chunk.empty()) return changed;
    offset += chunk.size();
    text += chunk;
    size_t begin = 0;
    for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
      add(std::string_view(text).substr(begin, end - begin));
    if (begin == 0) continue;
    changed = true;
    read_bytes_ += begin;
    tail_ = text.substr(begin - std::min(begin, kTailBytes), std::min(begin, kTailBytes));
    text.erase(0, begin);
  }
}

// Whether what was read is still there. A run that resumes cuts the file and appends other lines.
bool MetricsFile::is_continued() const {
  if (read_bytes_ == 0) return true;
  if (!is_there(path_)) return false;
  uint64_t bytes = 0;
  const Descriptor file(open_regular(path_, bytes));
  return bytes >= read_bytes_ &&
         read_at(path_, file.fd, read_bytes_ - tail_.size(), tail_.size()) == tail_;
}

void MetricsFile::add(std::string_view line) {
  const std::optional<MetricsLine> parsed = parse_metrics_line(line);
  if (!parsed) {
    if (!line.empty()) ++damaged_;
    return;
  }
  ++lines_;
  step_ = parsed->step;
  for (const auto& [name, value] : parsed->numbers) {
    auto found = series_.find(name);
    if (found == series_.end()) found = series_.emplace(name, MetricSeries{}).first;
    found->second.steps.push_back(step_);
    found->second.values.push_back(value);
  }
  newest_texts_.clear();
  for (const auto& [name, text] : parsed->texts) newest_texts_.emplace(name, text);
}

const MetricSeries& MetricsFile::of(std::string_view field) const {
  static const MetricSeries kEmpty;
  const auto found = series_.find(field);
  return found == series_.end() ? kEmpty : found->second;
}

std::vector<std::string> MetricsFile::fields() const {
  std::vector<std::string> names;
  for (const auto& [name, series] : series_) names.push_back(name);
  return names;
}

std::optional<double> MetricsFile::newest(std::string_view field) const {
  const MetricSeries& series = of(field);
  if (series.empty() || series.steps.back() != step_) return std::nullopt;
  return series.values.back();
}

std::string MetricsFile::newest_text(std::string_view field) const {
  const auto found = newest_texts_.find(field);
  return found == newest_texts_.end() ? "" : found->second;
}

}  // namespace lockstep::launcher
