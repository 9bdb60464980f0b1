#include "runtime/train/folder/writer_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "runtime/base/ending_process.h"
#include "runtime/base/error.h"
#include "runtime/base/host.h"
#include "runtime/base/log.h"
#include "runtime/base/passing_error.h"
#include "runtime/base/time.h"
#include "runtime/metrics/environment.h"

namespace lockstep::train {
namespace {

constexpr const char* kFile = "writer.lock";
constexpr std::chrono::milliseconds kPoll{200};
constexpr size_t kMaxText = 4096;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string describe(const WriterLockOptions& options) {
  std::string text =
      fmt::format("host {}\npid {}\nsince {}\n", host_name(), ::getpid(), metrics::utc_now());
  if (!options.job.empty()) text += fmt::format("job {}\n", options.job);
  const RunGeneration& generation = options.generation;
  if (generation.number > 0)
    text += fmt::format("generation {}\nlaunch {}\n", generation.number, generation.launch);
  return text;
}

// ENOLCK: NFS without its lock service; EINVAL: a kernel without such locks.
bool means_no_locks(int error) {
  return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

std::string words_for(const WriterInfo& holder) {
  if (holder.pid.empty()) return "another process";
  return fmt::format("process {} on host {}, since {}{}",
                     holder.pid,
                     holder.host,
                     holder.since,
                     holder.job.empty() ? "" : ", job " + holder.job);
}

Descriptor open_lock(int folder, const std::filesystem::path& name) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW;
  return Descriptor(uninterrupted([&] { return ::openat(folder, name.c_str(), kFlags); }));
}

std::string text_in(const Descriptor& file) {
  char buffer[kMaxText];
  const ssize_t bytes =
      file.fd < 0 ? 0 : uninterrupted([&] { return ::read(file.fd, buffer, sizeof(buffer)); });
  return std::string(buffer, static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
}

WriterInfo info_from(const std::string& text) {
  WriterInfo info;
  std::istringstream lines(text);
  for (std::string name, value; lines >> name >> value;) {
    if (name == "host") info.host = value;
    if (name == "pid") info.pid = value;
    if (name == "since") info.since = value;
    if (name == "job") info.job = value;
    if (name == "generation") info.generation.number = std::atoll(value.c_str());
    if (name == "launch") info.generation.launch = value;
  }
  return info;
}

// Whether another process holds the open file.
bool is_held(const Descriptor& file, const std::string& text) {
  if (text.find("\nbeat ") != std::string::npos) {
    struct stat status {};
    const auto silence_s = static_cast<std::time_t>(WriterLockOptions().silence_s);
    return ::fstat(file.fd, &status) == 0 && status.st_mtim.tv_sec + silence_s > std::time(nullptr);
  }
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(file.fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace

WriterLockOptions WriterLockOptions::from_environment() {
  WriterLockOptions options;
  options.job = variable("SLURM_JOB_ID");
  options.requeued = std::atoi(variable("SLURM_RESTART_COUNT").c_str()) > 0;
  options.generation = own_generation();
  return options;
}

WriterLock::WriterLock(int folder,
                       const std::filesystem::path& path,
                       const WriterLockOptions& options)
    : folder_(folder), path_(path.string()), options_(options), info_(describe(options)) {
  acquire();
}

WriterLock::~WriterLock() {
  stop_beating();
  if (file_ && names(*file_)) ::unlinkat(folder_, kFile, 0);
}

void WriterLock::acquire() {
  const double deadline_ms = now_ms() + options_.patience_s * 1000;
  take_from_given_up();
  for (bool logged = false;; logged = true) {
    if (attempt() == Attempt::kHeld) return;
    if (take_from_given_up()) continue;
    const WriterInfo other = holder();
    const bool same_job = !options_.job.empty() && other.job == options_.job;
    const std::string who = words_for(other);
    if ((!options_.requeued && !same_job) || now_ms() >= deadline_ms)
      throw CheckpointError(
          "run folder '{}' is in use by {}; one run at a time may write there: wait for it or end "
          "it, or give another --run-dir",
          path_,
          who);
    if (!logged)
      log_info(
          "run folder '{}' is in use by {}: waiting up to {} s for it to end, because this job was "
          "requeued",
          path_,
          who,
          options_.patience_s);
    std::this_thread::sleep_for(kPoll);
  }
}

// Removes the file of a start that `launch` has given up or seen end, or whose writer is being
// killed, so that the file can be made again.
bool WriterLock::take_from_given_up() {
  const RunGeneration& own = options_.generation;
  if (own.number == 0) return false;
  const WriterInfo other = holder();
  const RunGeneration& theirs = other.generation;
  const bool earlier = theirs.number > 0 && theirs.number < own.number;
  if (!earlier) return false;
  const bool given_up =
      theirs.launch == own.launch || theirs.number < read_generation(path_).number;
  // The writer's `launch` may have been killed too, before it could give up the start.
  if (!given_up && (other.host != host_name() || !is_ending(std::atoi(other.pid.c_str()))))
    return false;
  if (::unlinkat(folder_, kFile, 0) != 0 && errno != ENOENT)
    throw IoError("remove", path_ + "/" + kFile, errno);
  return true;
}

WriterLock::Attempt WriterLock::attempt() {
  if (options_.system_locks) {
    const Attempt outcome = try_system_lock();
    if (outcome != Attempt::kNoLocks) return outcome;
    options_.system_locks = false;
    log_warn(
        "run folder '{}': its file system has no locks; writer.lock has a heartbeat instead, and "
        "counts as abandoned after {} s without one",
        path_,
        options_.silence_s);
  }
  return try_heartbeat() ? Attempt::kHeld : Attempt::kOther;
}

WriterLock::Attempt WriterLock::try_system_lock() {
  while (true) {
    file_.emplace(open_to_write(folder_, kFile, path_ + "/" + kFile, O_RDWR | O_CREAT));
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    if (uninterrupted([&] { return ::fcntl(file_->fd, F_OFD_SETLK, &lock); }) != 0) {
      const int error = errno;
      file_.reset();
      if (error == EAGAIN || error == EACCES) return Attempt::kOther;
      if (means_no_locks(error)) {
        if (text().empty()) ::unlinkat(folder_, kFile, 0);  // made by this attempt
        return Attempt::kNoLocks;
      }
      throw IoError("lock", path_ + "/" + kFile, error);
    }
    // The previous holder may have removed the file between the two calls.
    if (!names(*file_)) continue;
    // Copies of the folder that share this file (cp -al) keep its contents.
    struct stat status {};
    if (::fstat(file_->fd, &status) != 0 || status.st_nlink == 1) break;
    if (::unlinkat(folder_, kFile, 0) != 0) throw IoError("remove", path_ + "/" + kFile, errno);
  }
  try {
    hold(-1);
  } catch (const IoError& error) {  // the text is only for messages
    if (!may_pass(error.error_number())) throw;
  }
  return Attempt::kHeld;
}

bool WriterLock::try_heartbeat() {
  const auto create = [&] {
    file_.reset();
    try {
      file_.emplace(open_to_write(folder_, kFile, path_ + "/" + kFile, O_RDWR | O_CREAT | O_EXCL));
    } catch (const IoError& error) {
      if (error.error_number() != EEXIST) throw;
    }
    return file_.has_value();
  };
  if (!create()) {
    if (is_silent()) ::unlinkat(folder_, kFile, 0);
    if (!create()) return false;  // the holder may have removed it by itself
  }
  hold(0);
  heart_ = std::thread([this] { keep_beating(); });
  return true;
}

// Whether the file's text does not change for as long as it takes to be sure that its holder is
// dead.
bool WriterLock::is_silent() const {
  const std::string before = text();
  log_info("run folder '{}' has a writer.lock of {}: watching it for up to {} s for signs of life",
           path_,
           words_for(holder()),
           options_.silence_s);
  const double end_ms = now_ms() + options_.silence_s * 1000;
  while (now_ms() < end_ms) {
    std::this_thread::sleep_for(
        std::min(kPoll, std::chrono::milliseconds(static_cast<int64_t>(options_.beat_s * 1000))));
    if (text() != before) return false;
  }
  return true;
}

// Whether the folder's writer.lock is the file that is open here.
bool WriterLock::names(const Descriptor& file) const {
  struct stat open {};
  struct stat named {};
  return ::fstat(file.fd, &open) == 0 && ::fstatat(folder_, kFile, &named, 0) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// Writes who holds the file and, unless `beat` is negative, the count of the heartbeat.
void WriterLock::hold(int64_t beat) {
  std::string text = info_;
  if (beat >= 0) text += fmt::format("beat {:010}\n", beat);
  const ssize_t wrote =
      uninterrupted([&] { return ::pwrite(file_->fd, text.data(), text.size(), 0); });
  if (wrote < 0) throw IoError("write", path_ + "/" + kFile, errno);
  if (beat <= 0 && ::ftruncate(file_->fd, static_cast<off_t>(text.size())) != 0)
    throw IoError("truncate", path_ + "/" + kFile, errno);
  if (beat >= 0) ::fsync(file_->fd);  // for other hosts
}

void WriterLock::keep_beating() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> pause(options_.beat_s);
  for (int64_t beat = 1; !wake_.wait_for(lock, pause, [&] { return ending_; }); ++beat) {
    try {
      hold(beat);
    } catch (const IoError&) {
      // Other processes will take over the folder after a while, and check() reports it.
    }
  }
}

void WriterLock::stop_beating() {
  if (!heart_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  heart_.join();
  ending_ = false;
}

void WriterLock::check() {
  if (names(*file_)) return;
  stop_beating();
  if (attempt() == Attempt::kHeld) {
    log_warn("run folder '{}': writer.lock had been removed; it was created again", path_);
    return;
  }
  throw CheckpointError(
      "run folder '{}' was taken over by {}, after this run's writer.lock was removed",
      path_,
      words_for(holder()));
}

std::string WriterLock::text() const {
  // Opens the file again, because NFS asks the server only on opening.
  return text_in(open_lock(folder_, kFile));
}

WriterInfo WriterLock::holder() const { return info_from(text()); }

std::optional<WriterInfo> writer_of(const std::filesystem::path& run_dir) {
  const Descriptor file = open_lock(AT_FDCWD, run_dir / kFile);
  const std::string text = text_in(file);
  if (file.fd < 0 || !is_held(file, text)) return std::nullopt;
  return info_from(text);
}

}  // namespace lockstep::train
