#pragma once
// Reads metrics.jsonl of a run, also while the run writes to it.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::launcher {

// The values of one field, by line. Lines without the field are left out; a number that is not
// finite (null in the file) is NaN.
struct MetricSeries {
  std::vector<int64_t> steps;
  std::vector<double> values;

  bool empty() const { return steps.empty(); }
};

// One line, a flat object. Texts are as they stand in the file, between the quotation marks.
struct MetricsLine {
  std::vector<std::pair<std::string_view, double>> numbers;
  std::vector<std::pair<std::string_view, std::string_view>> texts;
  int64_t step = -1;
};

// Parses a line as metrics/jsonl.cc writes them: numbers, null, true, false, and texts without
// escapes. The result refers to `line`. Nothing if the line is damaged or has no step.
std::optional<MetricsLine> parse_metrics_line(std::string_view line);

// Keeps every value in memory: 16 bytes a number, some 320 MB for a file of a million lines.
class MetricsFile {
 public:
  explicit MetricsFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Reads the complete lines that were appended since the last call. If the file was cut or
  // replaced since, as a resumed run does, reads it from its beginning. Returns whether anything
  // has changed. A file that is not there is empty. Throws IoError.
  bool update();

  int64_t lines() const { return lines_; }
  int64_t damaged_lines() const { return damaged_; }
  int64_t step() const { return step_; }  // of the newest line; 0: none
  // Empty if no line has the field.
  const MetricSeries& of(std::string_view field) const;
  // Names of the fields that are numbers, in alphabetical order.
  std::vector<std::string> fields() const;
  // The newest line's value; nothing if that line has none.
  std::optional<double> newest(std::string_view field) const;
  std::string newest_text(std::string_view field) const;

 private:
  bool is_continued() const;
  void add(std::string_view line);

  std::filesystem::path path_;
  uint64_t read_bytes_ = 0;  // complete lines
  std::string tail_;         // the last bytes before that, by which a rewritten file is noticed
  int64_t lines_ = 0, damaged_ = 0, step_ = 0;
  std::map<std::string, MetricSeries, std::less<>> series_;
  std::map<std::string, std::string, std::less<>> newest_texts_;
};

}  // namespace lockstep::launcher
