#pragma once
// The flight recorder logs what this process does in a ring of entries in a file that outlives the
// process. The file is mapped into memory, so an entry costs some nanoseconds, and the last entries
// survive even if the process is killed. Others read the file while it grows: the other ranks of
// the host, to detect a stuck rank (collectives/watch/watchdog.h), and `lockstep inspect`
// afterwards.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep {

enum class FlightPhase : uint32_t { kSetup, kTraining, kEvaluation, kSaving, kLoading, kEnded };

// Whether a rank in this phase, or another rank at the same time, may be waiting for a disk.
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
  kGradientsRead,  // by the node's other ranks
  kParameters
};

enum class FlightState : uint32_t { kStarted, kWaiting, kDone };

// One event.
struct FlightEntry {
  int64_t time_ns = 0;      // since 1970
  int64_t step = 0;         // steps done
  uint64_t collective = 0;  // number of the operation; the same on all ranks
  uint64_t bytes = 0;
  int32_t bucket = -1;
  FlightOp op = FlightOp::kNone;
  FlightState state = FlightState::kStarted;
  FlightPhase phase = FlightPhase::kSetup;
};

// The beginning of an operation in which all ranks take part. `history` is a digest of the kinds
// and sizes of all operations up to this one. Ranks that do the same have the same history.
struct FlightStart {
  uint64_t number = 0;  // counts from 1
  uint64_t history = 0;
  uint64_t bytes = 0;
  int32_t bucket = -1;
  FlightOp op = FlightOp::kNone;
};

// The operation between ranks that a rank's GPU has reached. The GPU writes it itself, as one word,
// so that it is known even inside of a CUDA graph, of which the host sees only the start and the
// end. Ranks do the same operations in the same order, so their counts can be compared.
struct DevicePoint {
  static constexpr int kOpBits = 4, kBucketBits = 24, kLabelBits = kOpBits + kBucketBits;

  uint64_t count = 0;  // of beginnings and ends of operations: odd within an operation
  int32_t bucket = -1;
  FlightOp op = FlightOp::kNone;

  bool inside() const { return count % 2 == 1; }
  uint64_t word() const { return count << kLabelBits | label(op, bucket); }
  static DevicePoint of(uint64_t word);
  // What the word has below the count.
  static uint64_t label(FlightOp op, int bucket);
};

// The header of the file. Written by one process, read by others.
struct FlightHeader {
  static constexpr uint64_t kMagic = 0x74686769'6c66534cULL;  // "LSflight" in memory
  static constexpr uint32_t kVersion = 4;
  static constexpr uint32_t kEntries = 1024;

  std::atomic<uint64_t> magic = 0;  // set to kMagic once the rest is initialised
  uint32_t version = kVersion;
  int32_t rank = 0, ranks = 1;
  int64_t process = 0, begin_ns = 0;
  char host[64] = {};
  // Grows with everything that is done: an op of the network, a part of a message. A process whose
  // count does not change is stuck or waiting.
  std::atomic<uint64_t> beats = 0;
  std::atomic<uint64_t> alive = 0;  // grows on its own, unless the process is stopped
  std::atomic<int64_t> step = 0;
  std::atomic<FlightPhase> phase = FlightPhase::kSetup;
  std::atomic<uint32_t> waiting = 0;  // for other ranks
  // Set when the process ends, with or without an error: nobody need watch it.
  std::atomic<uint32_t> left = 0;
  std::atomic<uint64_t> entries = 0;  // written so far; the ring has the newest kEntries
  std::atomic<uint64_t> begun = 0;    // operations begun; the newest kEntries have a FlightStart
  // Steps done when this process began its first step; -1: it has not begun one.
  std::atomic<int64_t> first_step = -1;
  std::atomic<uint64_t> device = 0;  // the word of a DevicePoint
  // Seconds that the host has waited for its GPU, and whether that is longer than work may take.
  std::atomic<float> device_wait_s = 0;
  std::atomic<uint32_t> device_late = 0;
  // What this process has found wrong in the run, valid once `found` is 1.
  std::atomic<uint32_t> found = 0;
  int32_t found_rank = -1;
  char found_text[2048] = {};
};

// The reason why a run ends, as one of its watchdogs has found it.
struct FlightFinding {
  int rank = -1;  // the stuck rank, which may report where it is; -1: none
  std::string text;
};

// The file's layout.
struct FlightRing {
  FlightHeader header;
  FlightEntry entries[FlightHeader::kEntries];  // entry i is at i % kEntries
  FlightStart starts[FlightHeader::kEntries];   // likewise
};

// The recorder of this process. One thread writes to it. Until it is opened, only the phase, the
// step and the beats are kept, and any thread may call it: ranks that are threads of one process
// have no file.
class FlightRecorder {
 public:
  static FlightRecorder& here();

  // From now on records to FOLDER/rank-RANK.ring, which is created anew. Throws IoError.
  void open(const std::filesystem::path& folder, int rank, int ranks);
  // True for the first process of the run that calls this. It is the one that reports a failure
  // that several ranks have noticed. Without a record, all processes report it.
  bool claim_report() const;
  // The folder; empty until open().
  const std::filesystem::path& folder() const { return folder_; }

  FlightPhase phase() const { return header_->phase.load(std::memory_order_relaxed); }
  void begin_phase(FlightPhase phase);
  void begin_step(int64_t done);
  void beat() {
    header_->beats.store(header_->beats.load(std::memory_order_relaxed) + 1,
                         std::memory_order_relaxed);
  }
  // The process runs, and its GPU has got so far. Called by the watchdog's thread, because the main
  // thread may be stuck in a call of a library.
  void keep_alive();
  // The process is about to end, and need make no more progress. From any thread.
  void leave() { header_->left.store(1, std::memory_order_release); }
  // Reports a finding to the other processes of the host. At most once; from the watchdog's thread.
  void report(const FlightFinding& finding);
  // Sets the bucket of the following operations; -1: no bucket.
  void set_bucket(int bucket) {
    if (ring_ != nullptr) bucket_ = bucket;
  }

  int bucket() const { return bucket_; }

  // From now on the GPU writes the word of its DevicePoint there; null: no longer.
  void watch_device(const std::atomic<uint64_t>* word);
  // The host has waited so long for its GPU; 0: the GPU has finished its work. `late`: longer than
  // work may take.
  void wait_for_device(double seconds, bool late);
  // What the buckets hold, for messages.
  void name_buckets(std::vector<std::string> names);
  // "bucket 5 (layers.3.mlp.up.weight to layers.3.norm.weight)".
  std::string name_of_bucket(int bucket) const;

  // Records that an operation of all ranks begins. Returns its number, which counts from open().
  uint64_t begin(FlightOp op, size_t bytes);
  // The same for an operation that this rank waits for from its start.
  uint64_t begin_waiting(FlightOp op, size_t bytes);
  // This rank waits until the operation is complete.
  void wait(uint64_t collective, FlightOp op, size_t bytes);
  // The operation is complete.
  void end(uint64_t collective, FlightOp op, size_t bytes);

 private:
  FlightRecorder() = default;
  void note_start(FlightOp op, size_t bytes);
  void note(FlightOp op, FlightState state, uint64_t collective, size_t bytes);

  std::filesystem::path folder_;
  FlightHeader unopened_;
  FlightHeader* header_ = &unopened_;
  FlightRing* ring_ = nullptr;
  FlightStart last_;  // the newest operation that has begun
  int bucket_ = -1;
  mutable std::mutex mutex_;  // of what follows
  const std::atomic<uint64_t>* device_ = nullptr;
  std::vector<std::string> bucket_names_;
};

// The file to which the recorder of a rank writes.
std::filesystem::path flight_path(const std::filesystem::path& folder, int rank);

// Sets the phase until the end of a block, and then restores the previous one. If the block ends
// with an exception, the phase stays, to show in which phase the error happened.
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
