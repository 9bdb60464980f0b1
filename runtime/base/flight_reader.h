#pragma once
// Reads the files of flight recorders, whether their processes still run or not.

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
  std::optional<FlightEntry> last{};  // the newest entry
  FlightStart begun{};                // the newest operation; number 0: none
  DevicePoint device{};               // count 0: no GPU, or its first operation has not begun
  double device_wait_s = 0;           // as in FlightHeader
  bool device_late = false;
};

// A mapped file that is read repeatedly, or a copy of a file.
class FlightReader {
 public:
  // Returns null if there is no such file, or if it is of another kind or version.
  static std::unique_ptr<FlightReader> open(const std::filesystem::path& path);
  // Like open(), but reads a copy of the file's present contents, which stays readable if the file
  // is truncated or its disk fails.
  static std::unique_ptr<FlightReader> copy(const std::filesystem::path& path);
  ~FlightReader();
  FlightReader(const FlightReader&) = delete;
  FlightReader& operator=(const FlightReader&) = delete;

  FlightMoment now() const;
  // What this process has reported as wrong in the run, if anything.
  std::optional<FlightFinding> finding() const;
  // The operation with this number, if it has begun and is still in the ring.
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

// "training", "evaluating".
const char* name_of(FlightPhase phase);
// "exchange 5031 of bucket 3 (4194304 bytes)".
std::string text_of(const FlightEntry& entry);
std::string text_of(const FlightStart& start);
// "exchange of bucket 3 (layers.1.weight to layers.1.bias)".
std::string text_of(const DevicePoint& point);
// "step 41, training, in exchange 5031 of bucket 3 (4194304 bytes)", and how far the GPU is, if the
// rank has one.
std::string text_of(const FlightMoment& moment);

// "; it was at step 41, ..." for another rank of this run. Empty if its file cannot be read on this
// host.
std::string last_seen(int rank);

}  // namespace lockstep
