#include "launcher/launch/output.h"

#include <fmt/core.h>

#include <cstdio>

namespace lockstep::launch {

void Output::add(int rank, int stream, std::string_view bytes) {
  std::string& line = begun_[{rank, stream}];
  for (size_t end = bytes.find('\n'); end != std::string_view::npos; end = bytes.find('\n')) {
    line += bytes.substr(0, end + 1);
    pass(rank, stream, line);
    line.clear();
    bytes.remove_prefix(end + 1);
  }
  line += bytes;
}

void Output::finish(int rank) {
  for (const int stream : {1, 2}) {
    std::string& line = begun_[{rank, stream}];
    if (!line.empty()) pass(rank, stream, line + "\n");
    line.clear();
  }
}

// Where nobody reads our own stream any more the line is lost.
void Output::pass(int rank, int stream, std::string_view line) {
  constexpr size_t kMostBytes = 65536;
  const std::string whole = tag_ ? fmt::format("[rank {}] {}", rank, line) : std::string(line);
  std::FILE* const file = stream == 1 ? stdout : stderr;
  std::fwrite(whole.data(), 1, whole.size(), file);
  std::fflush(file);
  if (stream != 2) return;
  errors_ += whole;
  if (errors_.size() > 2 * kMostBytes) errors_.erase(0, errors_.size() - kMostBytes);
}

}  // namespace lockstep::launch
