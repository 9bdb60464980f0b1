#include "runtime/base/flight_reader.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

const char* name_of(FlightOp op) {
  switch (op) {
    case FlightOp::kNone: return "nothing";
    case FlightOp::kExchange: return "exchange";
    case FlightOp::kAllGather: return "all-gather";
    case FlightOp::kReduceScatter: return "reduce-scatter";
    case FlightOp::kBroadcast: return "broadcast";
    case FlightOp::kGradients: return "wait for gradients in shared memory";
    case FlightOp::kGradientsRead: return "wait until gradients in shared memory were read";
    case FlightOp::kParameters: return "wait for parameters in shared memory";
  }
  return "unknown operation";
}

}  // namespace

const char* name_of(FlightPhase phase) {
  switch (phase) {
    case FlightPhase::kSetup: return "starting";
    case FlightPhase::kTraining: return "training";
    case FlightPhase::kEvaluation: return "evaluating";
    case FlightPhase::kSaving: return "saving";
    case FlightPhase::kLoading: return "loading";
    case FlightPhase::kEnded: return "ended";
  }
  return "unknown phase";
}

std::unique_ptr<FlightReader> FlightReader::open(const std::filesystem::path& path) {
  return read(path, /*mapped=*/true);
}

std::unique_ptr<FlightReader> FlightReader::copy(const std::filesystem::path& path) {
  return read(path, /*mapped=*/false);
}

std::unique_ptr<FlightReader> FlightReader::read(const std::filesystem::path& path, bool mapped) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return nullptr;
  struct stat status = {};
  const bool is_valid = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) &&
                        static_cast<size_t>(status.st_size) == sizeof(FlightRing);
  void* memory = MAP_FAILED;
  if (is_valid && mapped) {
    memory = ::mmap(nullptr, sizeof(FlightRing), PROT_READ, MAP_SHARED, descriptor, 0);
  } else if (is_valid) {
    memory = ::mmap(
        nullptr, sizeof(FlightRing), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED && ::pread(descriptor, memory, sizeof(FlightRing), 0) !=
                                    static_cast<ssize_t>(sizeof(FlightRing))) {
      ::munmap(memory, sizeof(FlightRing));
      memory = MAP_FAILED;
    }
  }
  ::close(descriptor);
  if (memory == MAP_FAILED) return nullptr;
  std::unique_ptr<FlightReader> reader(new FlightReader(memory));
  const FlightHeader& header = reader->header();
  if (header.magic.load(std::memory_order_acquire) != FlightHeader::kMagic ||
      header.version != FlightHeader::kVersion)
    return nullptr;
  return reader;
}

FlightReader::~FlightReader() { ::munmap(const_cast<void*>(memory_), sizeof(FlightRing)); }

FlightMoment FlightReader::now() const {
  const FlightHeader& from = header();
  FlightMoment moment;
  moment.rank = from.rank;
  moment.ranks = from.ranks;
  moment.process = from.process;
  moment.begin_ns = from.begin_ns;
  moment.host.assign(from.host, ::strnlen(from.host, sizeof(from.host)));
  const uint64_t written = from.entries.load(std::memory_order_acquire);
  if (written > 0) moment.last = entry(written - 1);
  moment.begun = start(from.begun.load(std::memory_order_acquire)).value_or(FlightStart{});
  moment.waiting = from.waiting.load(std::memory_order_acquire) != 0;
  moment.left = from.left.load(std::memory_order_acquire) != 0;
  moment.beats = from.beats.load(std::memory_order_relaxed);
  moment.alive = from.alive.load(std::memory_order_relaxed);
  moment.step = from.step.load(std::memory_order_relaxed);
  moment.first_step = from.first_step.load(std::memory_order_relaxed);
  moment.phase = from.phase.load(std::memory_order_relaxed);
  moment.device = DevicePoint::of(from.device.load(std::memory_order_relaxed));
  moment.device_wait_s = from.device_wait_s.load(std::memory_order_relaxed);
  moment.device_late = from.device_late.load(std::memory_order_acquire) != 0;
  return moment;
}

std::optional<FlightStart> FlightReader::start(uint64_t number) const {
  const FlightStart found = ring().starts[number % FlightHeader::kEntries];
  std::atomic_thread_fence(std::memory_order_acquire);
  // Another start may have overwritten this one while it was read.
  const uint64_t begun = header().begun.load(std::memory_order_acquire);
  const bool is_valid =
      number > 0 && number <= begun && begun - number < FlightHeader::kEntries - 1;
  return is_valid && found.number == number ? std::optional(found) : std::nullopt;
}

std::optional<FlightFinding> FlightReader::finding() const {
  const FlightHeader& from = header();
  if (from.found.load(std::memory_order_acquire) == 0) return std::nullopt;
  const size_t length = ::strnlen(from.found_text, sizeof(from.found_text));
  return FlightFinding{from.found_rank, std::string(from.found_text, length)};
}

std::vector<FlightEntry> FlightReader::entries() const {
  const uint64_t written = header().entries.load(std::memory_order_acquire);
  const uint64_t kept = std::min<uint64_t>(written, FlightHeader::kEntries);
  std::vector<FlightEntry> entries;
  for (uint64_t number = written - kept; number < written; ++number)
    entries.push_back(entry(number));
  return entries;
}

std::string text_of(const FlightStart& start) {
  std::string text = name_of(start.op);
  if (start.number > 0) text += fmt::format(" {}", start.number);
  if (start.bucket >= 0) text += fmt::format(" of bucket {}", start.bucket);
  return start.bytes == 0 ? text : text + fmt::format(" ({} bytes)", start.bytes);
}

std::string text_of(const FlightEntry& entry) {
  return text_of(FlightStart{
      .number = entry.collective, .bytes = entry.bytes, .bucket = entry.bucket, .op = entry.op});
}

std::string text_of(const DevicePoint& point) {
  const std::string text = name_of(point.op);
  if (point.bucket < 0) return text;
  return text + " of " + FlightRecorder::here().name_of_bucket(point.bucket);
}

std::string text_of(const FlightMoment& moment) {
  std::string text = fmt::format("step {}, {}", moment.step, name_of(moment.phase));
  if (moment.last) {
    switch (moment.last->state) {
      case FlightState::kStarted: text += ", at work after it had begun "; break;
      case FlightState::kWaiting: text += ", in "; break;
      case FlightState::kDone: text += ", at work after "; break;
    }
    text += text_of(*moment.last);
  }
  if (moment.device.count == 0) return text;
  return text + (moment.device.inside() ? ", its GPU in the " : ", its GPU at work after the ") +
         text_of(moment.device);
}

std::string last_seen(int rank) {
  const std::filesystem::path& folder = FlightRecorder::here().folder();
  if (folder.empty()) return "";
  const auto reader = FlightReader::open(flight_path(folder, rank));
  return reader == nullptr ? "" : "; it was at " + text_of(reader->now());
}

}  // namespace lockstep
