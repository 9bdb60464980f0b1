#pragma once
// The flight recorder: what this process does, in a ring of entries in a file that outlives it. The
// file is mapped into memory, so that writing costs some nanoseconds, and what a process wrote last
// is there although it was killed. Others read it while it grows: the ranks of its host, to see who
// stands still (collectives/watch/watchdog.h), and `lockstep inspect` afterwards.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>

namespace lockstep {

enum class FlightPhase : uint32_t { kSetup, kTraining, kEvaluation, kSaving, kLoading, kEnded };

// Whether a rank in this phase, or another one meanwhile, may be kept by a disk.
inline bool reads_or_writes_files(FlightPhase phase) {
  return phase != FlightPhase::kTraining && phase != FlightPhase::kEnded;
}

enum class FlightOp : uint32_t {
  kNone,
  kExchange,
  kAllGather,
  kReduceScatter,
  kBroadcast,
  kGradients,      // of the node's other ranks, in shared memory
  kGradientsRead,  // by them
  kParameters
};

enum class FlightState : uint32_t { kStarted, kWaiting, kDone };

// One thing that happened.
struct FlightEntry {
  int64_t time_ns = 0;      // since 1970
  int64_t step = 0;         // steps done
  uint64_t collective = 0;  // its number; the same on all ranks
  uint64_t bytes = 0;
  int32_t bucket = -1;
  FlightOp op = FlightOp::kNone;
  FlightState state = FlightState::kStarted;
  FlightPhase phase = FlightPhase::kSetup;
};

// An operation of all ranks, as it began. Ranks that do the same have the same history: a digest of
// the kinds and sizes of all operations up to this one.
struct FlightStart {
  uint64_t number = 0;  // from 1
  uint64_t history = 0;
  uint64_t bytes = 0;
  int32_t bucket = -1;
  FlightOp op = FlightOp::kNone;
};

// What stands at the beginning of the file. Written by one process, read by others.
struct FlightHeader {
  static constexpr uint64_t kMagic = 0x74686769'6c66534cULL;  // "LSflight" in memory
  static constexpr uint32_t kVersion = 3;
  static constexpr uint32_t kEntries = 1024;

  std::atomic<uint64_t> magic = 0;  // kMagic once the rest is there
  uint32_t version = kVersion;
  int32_t rank = 0, ranks = 1;
  int64_t process = 0, begin_ns = 0;
  char host[64] = {};
  // Grows with everything that is done: an op of the network, a part of a message. A process whose
  // count stays is stuck, or waits.
  std::atomic<uint64_t> beats = 0;
  std::atomic<uint64_t> alive = 0;  // grows by itself, unless the process is stopped
  std::atomic<int64_t> step = 0;
  std::atomic<FlightPhase> phase = FlightPhase::kSetup;
  std::atomic<uint32_t> waiting = 0;  // for other ranks
  std::atomic<uint32_t> left = 0;     // ends, in order or with an error: nobody need watch it
  std::atomic<uint64_t> entries = 0;  // written so far; the ring has the newest kEntries
  std::atomic<uint64_t> begun = 0;    // operations; of the newest kEntries there is a FlightStart
  std::atomic<int64_t> first_step =
      -1;  // steps done when this process began its first; -1: it has not
  // What this process has found wrong in the run, once `found` is 1.
  std::atomic<uint32_t> found = 0;
  int32_t found_rank = -1;
  char found_text[2048] = {};
};

// What ends a run, as one of its watchdogs has found it.
struct FlightFinding {
  int rank = -1;  // that stands still, and may say where; -1: none
  std::string text;
};

// The whole file.
struct FlightRing {
  FlightHeader header;
  FlightEntry entries[FlightHeader::kEntries];  // by their number, modulo
  FlightStart starts[FlightHeader::kEntries];   // likewise
};

// The recorder of this process. One thread writes. Until it is opened only the phase, the step and
// the beats are kept, and any thread may come: ranks that are threads of one process have no record.
class FlightRecorder {
 public:
  static FlightRecorder& here();

  // From now on in FOLDER/rank-RANK.ring, which is made anew. Throws IoError.
  void open(const std::filesystem::path& folder, int rank, int ranks);
  // True for the first process of the run that asks: it tells the user of a failure which several
  // ranks have noticed. Where nothing is recorded all of them do.
  bool claim_last_word() const;
  // The folder; empty before.
  const std::filesystem::path& folder() const { return folder_; }

  FlightPhase phase() const { return header_->phase.load(std::memory_order_relaxed); }
  void begin_phase(FlightPhase phase);
  void begin_step(int64_t done);
  void beat() {
    header_->beats.store(header_->beats.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  }
  // The process runs; from the watchdog's thread.
  void keep_alive() { header_->alive.fetch_add(1, std::memory_order_relaxed); }
  // The process ends: it may stand still from now on. From any thread.
  void leave() { header_->left.store(1, std::memory_order_release); }
  // Tells the other processes of the host. Once; from the watchdog's thread.
  void tell(const FlightFinding& finding);
  // What the next operations are about; -1: no bucket.
  void about_bucket(int bucket) {
    if (ring_ != nullptr) bucket_ = bucket;
  }

  // An operation of all ranks begins; its number, counted from the opening.
  uint64_t begin(FlightOp op, size_t bytes);
  // The same of one that this rank waits for from the first.
  uint64_t begin_waiting(FlightOp op, size_t bytes);
  // This rank does nothing until the operation is through ...
  void wait(uint64_t collective, FlightOp op, size_t bytes);
  // ... which it is now.
  void end(uint64_t collective, FlightOp op, size_t bytes);

 private:
  FlightRecorder() = default;
  void note_start(FlightOp op, size_t bytes);
  void note(FlightOp op, FlightState state, uint64_t collective, size_t bytes);

  std::filesystem::path folder_;
  FlightHeader unopened_;
  FlightHeader* header_ = &unopened_;
  FlightRing* ring_ = nullptr;
  FlightStart last_;  // begun
  int bucket_ = -1;
};

// Where the recorder of a rank writes.
std::filesystem::path flight_path(const std::filesystem::path& folder, int rank);

// A phase from here to the end of a block, and then again what was before. Of an error the phase in
// which it happened stays.
class FlightScope {
 public:
  explicit FlightScope(FlightPhase phase) : before_(FlightRecorder::here().phase()) {
    FlightRecorder::here().begin_phase(phase);
  }
  ~FlightScope() {
    if (std::uncaught_exceptions() == errors_) FlightRecorder::here().begin_phase(before_);
  }
  FlightScope(const FlightScope&) = delete;
  FlightScope& operator=(const FlightScope&) = delete;

 private:
  FlightPhase before_;
  int errors_ = std::uncaught_exceptions();
};

}  // namespace lockstep
