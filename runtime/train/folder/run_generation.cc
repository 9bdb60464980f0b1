#include "runtime/train/folder/run_generation.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/host.h"
#include "runtime/base/text.h"

namespace lockstep::train {
namespace {

constexpr const char* kFile = "generation";
constexpr size_t kMaxBytes = 4096;
constexpr int64_t kMaxStarts = int64_t{1} << 60;  // leaves room to raise it

int64_t number_in(std::string_view text) {
  const int64_t number = parse_as<int64_t>(text).value_or(0);
  return number > 0 && number < kMaxStarts ? number : 0;
}

RunGeneration from_environment() {
  const char* number = std::getenv("LOCKSTEP_GENERATION");
  const char* launch = std::getenv("LOCKSTEP_LAUNCH_ID");
  if (number == nullptr || launch == nullptr || *launch == '\0') return {};
  return {number_in(number), launch};
}

}  // namespace

const RunGeneration& own_generation() {
  static const RunGeneration own = from_environment();
  return own;
}

RunGeneration read_generation(const std::filesystem::path& run_dir) {
  std::string text;
  try {
    text = read_file(run_dir / kFile, kMaxBytes);
  } catch (const IoError& error) {
    if (error.error_number() == ENOENT) return {};
    throw;
  }
  RunGeneration generation;
  std::istringstream lines(text);
  for (std::string name, value; lines >> name >> value;) {
    if (name == "generation") generation.number = number_in(value);
    if (name == "launch") generation.launch = value;
  }
  if (generation.number == 0)
    throw CheckpointError(
        "{}: has no line 'generation N'; remove the file if no run writes to its folder",
        (run_dir / kFile).string());
  return generation;
}

void write_generation(const std::filesystem::path& run_dir, const RunGeneration& generation) {
  write_file_atomically(run_dir / kFile,
                        fmt::format("generation {}\nlaunch {}\nhost {}\npid {}\n",
                                    generation.number,
                                    generation.launch,
                                    host_name(),
                                    ::getpid()));
}

void check_generation(const std::filesystem::path& run_dir, const RunGeneration& own) {
  if (own.number == 0) return;
  const RunGeneration newest = read_generation(run_dir);
  if (newest.number <= own.number) return;
  throw CheckpointError(
      "run folder '{}' now belongs to generation {} of its starts: lockstep launch has given up "
      "generation {}, to which this process belongs; it writes nothing",
      run_dir.string(),
      newest.number,
      own.number);
}

RunGeneration next_generation(const std::filesystem::path& run_dir, const RunGeneration& newest) {
  const RunGeneration there = read_generation(run_dir);
  const RunGeneration next{std::max(there.number, newest.number) + 1, newest.launch};
  if (there.number > 0 && there.launch == next.launch) write_generation(run_dir, next);
  return next;
}

}  // namespace lockstep::train
