#pragma once
// Reads what flight recorders have written: of processes that run, and of those that are gone.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/flight_recorder.h"

namespace lockstep {

// What a rank did last.
struct FlightMoment {
  int rank = 0, ranks = 1;
  int64_t process = 0, begin_ns = 0;
  std::string host{};
  uint64_t beats = 0, alive = 0;
  int64_t step = 0, first_step = -1;
  FlightPhase phase = FlightPhase::kSetup;
  bool waiting = false, left = false;
  std::optional<FlightEntry> last{};  // its newest entry
  FlightStart begun{};                // its newest operation; number 0: none
};

// A mapped file, read again and again, or a copy of one.
class FlightReader {
 public:
  // Nothing where there is no such file, or it is another kind or version.
  static std::unique_ptr<FlightReader> open(const std::filesystem::path& path);
  // The same of what the file has now: later its disk may fail, or somebody cut it short.
  static std::unique_ptr<FlightReader> copy(const std::filesystem::path& path);
  ~FlightReader();
  FlightReader(const FlightReader&) = delete;
  FlightReader& operator=(const FlightReader&) = delete;

  FlightMoment now() const;
  // What the process has found.
  std::optional<FlightFinding> finding() const;
  // An operation, where it has begun and is not too long ago.
  std::optional<FlightStart> start(uint64_t number) const;
  // The newest entries, oldest first. While the process writes, the oldest of them may be torn.
  std::vector<FlightEntry> entries() const;

 private:
  explicit FlightReader(const void* memory) : memory_(memory) {}
  static std::unique_ptr<FlightReader> read(const std::filesystem::path& path, bool mapped);
  const FlightRing& ring() const { return *static_cast<const FlightRing*>(memory_); }
  const FlightHeader& header() const { return ring().header; }
  const FlightEntry& entry(uint64_t number) const {
    return ring().entries[number % FlightHeader::kEntries];
  }

  const void* memory_;
};

// "exchange 5031 of bucket 3 (4194304 bytes)".
std::string text_of(const FlightEntry& entry);
std::string text_of(const FlightStart& start);
// "step 41, training, waiting in exchange 5031 of bucket 3 (4194304 bytes)".
std::string text_of(const FlightMoment& moment);

// "; it was at step 41, ..." of another rank of this run; empty where its file cannot be read here.
std::string last_seen(int rank);

}  // namespace lockstep
