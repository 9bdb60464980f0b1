#include "launcher/launch/output.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/base/streams.h"
#include "runtime/metrics/progress.h"

namespace lockstep::launch {
namespace {
constexpr size_t kMaxBytes = 65536;
}

void Output::add(int rank, int stream, std::string_view bytes) {
  std::string& line = unfinished_[{rank, stream}];
  const std::string_view ends = progress_columns_ > 0 && rank == 0 && stream == 2 ? "\n\r" : "\n";
  for (size_t end = bytes.find_first_of(ends); end != std::string_view::npos;
       end = bytes.find_first_of(ends)) {
    line += bytes.substr(0, end + 1);
    pass(rank, stream, line);
    line.clear();
    bytes.remove_prefix(end + 1);
  }
  line += bytes;
  if (line.size() <= kMaxBytes) return;
  pass(rank, stream, line);
  line.clear();
}

void Output::finish(int rank) {
  for (const int stream : {1, 2}) {
    std::string& line = unfinished_[{rank, stream}];
    if (!line.empty()) pass(rank, stream, line + "\n");
    line.clear();
  }
}

bool Output::is_written() {
  flush_streams();
  return lost_results().empty();
}

void Output::pass(int rank, int stream, std::string_view line) {
  if (stream == 2 && progress_columns_ > 0 && line == "\n")
    return print_log("\n");  // ends the progress
  std::string tagged = tag_ ? fmt::format("[rank {}] {}", rank, line) : std::string(line);
  if (tagged.ends_with('\r')) return redraw(std::move(tagged));
  if (stream == 1) return print_result(std::move(tagged));
  errors_ += tagged;
  if (errors_.size() > 2 * kMaxBytes) errors_.erase(0, errors_.size() - kMaxBytes);
  print_log(std::move(tagged));
}

void Output::redraw(std::string line) const {
  const int columns = metrics::terminal_columns(STDERR_FILENO);  // it may have changed
  line.resize(std::min(line.size() - 1, static_cast<size_t>(std::max(columns - 1, 0))));
  standard_error().add(
      STDERR_FILENO, std::string(OutputQueue::kEraseLine) + line, OutputQueue::Kind::kRedraw);
}

}  // namespace lockstep::launch
