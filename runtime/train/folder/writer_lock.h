#pragma once
// The lock that gives a run folder one writer.

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/base/file.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep::train {

// The contents of writer.lock, which describe the process that holds it, one "name value" per line.
// Empty if a line is missing.
struct WriterInfo {
  std::string host, pid, since, job;  // `since`: UTC; `job`: Slurm's job id, if any
  RunGeneration generation;
};

// The process that holds the lock of a run folder; nullopt if there is none, for example because
// the run has ended or died. On a file system without locks, the file counts as held if it was
// written in the last minute.
std::optional<WriterInfo> writer_of(const std::filesystem::path& run_dir);

struct WriterLockOptions {
  std::string job{};           // of this process
  bool requeued = false;       // whether it follows an earlier process of the same job
  double patience_s = 60;      // how long a requeued process waits for the earlier one to end
  bool system_locks = true;    // false: behave as if the file system had no locks
  double beat_s = 10;          // without system locks: interval of the heartbeat,
  double silence_s = 60;       // and silence after which the holder counts as dead
  RunGeneration generation{};  // of this process

  // Job and requeued from SLURM_JOB_ID and SLURM_RESTART_COUNT; the generation of this process.
  static WriterLockOptions from_environment();
};

// Holds the file writer.lock of a folder with an open file description lock. Such a lock ends with
// the process, however it ends, on this host or, on NFS, on another one. A file left by a dead
// process is taken over. Children do not inherit the lock, because the descriptor is closed on
// exec.
//
// If the file system has no locks, the holder counts up a heartbeat in the file instead, from a
// thread of its own. A start that finds such a file watches it for silence_s before it takes it
// over. If two do so at once, the later one wins, and the earlier one ends at its next check().
// A holder that `launch` has given up may still run. Its generation is in the file; a later start
// of the same `launch`, or of any `launch` if the folder's generation is later, takes the lock by
// making the file again. The former holder finds out in check_generation().
class WriterLock {
 public:
  // Takes the lock in the folder of the descriptor `folder`, which stays open; `path` is its name
  // in messages. If another process holds the lock, a requeued job waits and logs that. After that,
  // or at once otherwise, throws CheckpointError with the holder's host, pid and start time. Throws
  // IoError.
  WriterLock(int folder, const std::filesystem::path& path, const WriterLockOptions& options);
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
  // Removes the file and releases the lock.
  ~WriterLock();

  // Throws CheckpointError if another process has taken the lock meanwhile. If the file was
  // removed, it is made again, with a warning.
  void check();

 private:
  // Result of an attempt: the lock is held, another process has it, or there are no locks.
  enum class Attempt { kHeld, kOther, kNoLocks };
  Attempt attempt();
  Attempt try_system_lock();
  bool try_heartbeat();
  bool is_silent() const;
  bool take_from_given_up();
  bool names(const Descriptor& file) const;
  void acquire();
  void hold(int64_t beat);
  void keep_beating();
  void stop_beating();
  WriterInfo holder() const;
  std::string text() const;

  const int folder_;
  const std::string path_;
  WriterLockOptions options_;
  const std::string info_;
  std::optional<Descriptor> file_;
  std::thread heart_;  // without system locks
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;
};

}  // namespace lockstep::train
