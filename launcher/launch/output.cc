#include "launcher/launch/output.h"

#include <fmt/core.h>

#include <utility>

#include "runtime/base/streams.h"

namespace lockstep::launch {
namespace {
constexpr size_t kMaxBytes = 65536;
}

void Output::add(int rank, int stream, std::string_view bytes) {
  std::string& line = unfinished_[{rank, stream}];
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
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
  std::string tagged = tag_ ? fmt::format("[rank {}] {}", rank, line) : std::string(line);
  if (stream == 1) return print_result(std::move(tagged));
  errors_ += tagged;
  if (errors_.size() > 2 * kMaxBytes) errors_.erase(0, errors_.size() - kMaxBytes);
  print_log(std::move(tagged));
}

}  // namespace lockstep::launch
