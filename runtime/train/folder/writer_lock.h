#pragma once
// The lock by which a run folder has one writer.

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "runtime/base/file.h"
#include "runtime/train/folder/run_generation.h"

namespace lockstep {

// What writer.lock says of the process that holds it, one "name value" a line; empty where it says
// nothing.
struct WriterInfo {
  std::string host, pid, since, job;  // `since`: UTC; `job`: Slurm's number, if there is one
  RunGeneration generation;
};

struct WriterLockOptions {
  std::string job{};           // of this process
  bool requeued = false;       // it follows an earlier process of the same job
  double patience_s = 60;      // how long a requeued one waits for the earlier one to end
  bool system_locks = true;    // false: as if the file system had none
  double beat_s = 10;          // without system locks: how often the holder says that it lives,
  double silence_s = 60;       // and after how long without that it counts as dead
  RunGeneration generation{};  // of this process

  // Job and requeued as SLURM_JOB_ID and SLURM_RESTART_COUNT say; this process's generation.
  static WriterLockOptions from_environment();
};

// Holds the file writer.lock of a folder with an open file description lock, which ends with the
// process however that ends, on this host or, on NFS, another. A file that a dead process has left
// is taken over. Where the file system has no locks the holder counts up a heartbeat in the file
// instead, from a thread of its own: then a start that finds a file watches it for silence_s before
// it takes it over, and of two that do so at once the later wins and the earlier ends at its next
// check(). Children do not inherit the lock: what they exec has no descriptor of it.
//
// A holder that `launch` has given up may live on. Its generation is noted in the file, and a later
// start of the same `launch`, or any start of one if the folder's generation is a later one, takes
// the lock by making the file anew. The former holder finds out by check_generation().
class WriterLock {
 public:
  // Takes the lock in the folder that `folder`, a descriptor that stays open, stands for; `path` is
  // its name in messages. Where another process holds it a requeued job waits, and says so; then,
  // or else at once, throws CheckpointError with the holder's host, pid and start. Throws IoError.
  WriterLock(int folder, const std::filesystem::path& path, const WriterLockOptions& options);
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;
  // Removes the file and gives the lock back.
  ~WriterLock();

  // Throws CheckpointError where another process has taken the lock meanwhile. Where somebody has
  // removed the file it is made again, with a warning.
  void check();

 private:
  // The file as this process has it open, or nothing where another one holds it.
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

}  // namespace lockstep
