#include "runtime/metrics/buffered_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/passing_error.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {
constexpr size_t kFullBytes = size_t{64} << 10;
constexpr size_t kMostRecords = kFullBytes / 16;  // of the buffer
constexpr double kFlushMs = 1000;
}  // namespace

BufferedFile::BufferedFile(const std::filesystem::path& path,
                           std::function<void()> check,
                           size_t most_kept_bytes)
    : path_(path.string()),
      check_(std::move(check)),
      most_kept_bytes_(most_kept_bytes),
      buffer_(std::make_unique<char[]>(kFullBytes + kMaxRecordBytes)),
      next_flush_ms_(now_ms() + kFlushMs) {
  sizes_.reserve(kMostRecords);
  try {
    open();
  } catch (const IoError& error) {
    if (!may_pass(error.error_number())) throw;
    note(error.error_number());
  }
}

BufferedFile::~BufferedFile() {
  try {
    // The folder may be another's by now, but an open file is still this one's.
    if (descriptor_ >= 0) flush();
    tell_missing();
  } catch (const Error&) {
    // The file is not this process's any more. A destructor does not throw.
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

void BufferedFile::open() { descriptor_ = open_to_write(path_, O_WRONLY | O_CREAT | O_APPEND); }

void BufferedFile::commit(char* end) {
  const size_t bytes = static_cast<size_t>(end - reserve());
  LOCKSTEP_CHECK(bytes <= kMaxRecordBytes, "{}: a record of {} bytes", path_, bytes);
  used_ += bytes;
  sizes_.push_back(static_cast<uint32_t>(bytes));
  if (used_ >= kFullBytes || sizes_.size() == kMostRecords || now_ms() >= next_flush_ms_) {
    if (error_ != 0 && now_ms() < next_flush_ms_)
      keep_buffer(0);  // a full disk is not asked more often than once a second
    else
      flush();
  }
}

void BufferedFile::flush() {
  next_flush_ms_ = now_ms() + kFlushMs;
  int error = check();
  if (error == 0) error = write_kept();
  size_t whole = 0;  // records of the buffer that are in the file
  if (error == 0) error = write_records(buffer_.get(), sizes_.data(), sizes_.size(), whole);
  keep_buffer(whole);
  if (error != 0) return note(error);
  if (error_ == 0) return;
  error_ = 0;
  if (!std::exchange(told_written_, true))
    log_info("'{}' is written again{}",
             path_,
             dropped_ == 0 ? "; nothing is missing"
                           : fmt::format("; {} records of it were dropped", dropped_));
}

void BufferedFile::finish() {
  flush();
  tell_missing();
}

void BufferedFile::tell_missing() {
  if (missing() + sizes_.size() == 0 || std::exchange(told_missing_, true)) return;
  log_warn("'{}' lacks {} records, which could not be written: {}",
           path_,
           missing() + sizes_.size(),
           error_ == 0 ? "memory held no more" : std::strerror(error_));
}

// The number of an error that may pass, or 0 if the file may be written.
int BufferedFile::check() {
  if (!check_ || (used_ == 0 && kept_.empty())) return 0;
  try {
    check_();
  } catch (const IoError& error) {
    if (!may_pass(error.error_number())) throw;
    return error.error_number();
  }
  return 0;
}

// The error's number, or 0 if nothing is left.
int BufferedFile::write_kept() {
  int error = 0;
  if (descriptor_ < 0) {
    try {
      open();
    } catch (const IoError& failed) {
      if (!may_pass(failed.error_number())) throw;
      return failed.error_number();
    }
  }
  while (!kept_.empty() && error == 0) {
    std::string records;
    std::vector<uint32_t> sizes;
    for (auto record = kept_.begin(); record != kept_.end() && records.size() < kFullBytes;
         ++record) {
      records += *record;
      sizes.push_back(static_cast<uint32_t>(record->size()));
    }
    size_t whole = 0;
    error = write_records(records.data(), sizes.data(), sizes.size(), whole);
    for (; whole > 0; --whole) {
      kept_bytes_ -= kept_.front().size();
      kept_.pop_front();
    }
  }
  return error;
}

// Appends records that lie one after the other. Returns the error's number, or 0; `whole`: how many
// are in the file.
int BufferedFile::write_records(const char* data,
                                const uint32_t* sizes,
                                size_t count,
                                size_t& whole) {
  size_t bytes = 0, wrote = torn_bytes_;  // which an earlier call has written
  for (size_t i = 0; i < count; ++i) bytes += sizes[i];
  int error = 0;
  while (wrote < bytes && error == 0) {
    const ssize_t part =
        uninterrupted([&] { return ::write(descriptor_, data + wrote, bytes - wrote); });
    if (part > 0) wrote += static_cast<size_t>(part);
    if (part <= 0) error = part == 0 ? ENOSPC : errno;
  }
  for (whole = 0; whole < count && sizes[whole] <= wrote; ++whole) wrote -= sizes[whole];
  torn_bytes_ = wrote;
  struct stat status {};
  if (torn_bytes_ > 0 && ::fstat(descriptor_, &status) == 0 &&
      ::ftruncate(descriptor_, status.st_size - static_cast<off_t>(torn_bytes_)) == 0)
    torn_bytes_ = 0;
  if (error == ESTALE) ::close(std::exchange(descriptor_, -1));  // opened anew at the next try
  return error;
}

// Empties the buffer, of which the first `written` records are in the file.
void BufferedFile::keep_buffer(size_t written) {
  const char* record = buffer_.get();
  for (size_t i = 0; i < sizes_.size(); record += sizes_[i++])
    if (i >= written) keep(record, sizes_[i]);
  sizes_.clear();
  used_ = 0;
}

void BufferedFile::keep(const char* record, size_t bytes) {
  kept_.emplace_back(record, bytes);
  kept_bytes_ += bytes;
  // The first stays if a part of it is in the file.
  const size_t oldest = torn_bytes_ > 0 ? 1 : 0;
  while (kept_bytes_ > most_kept_bytes_ && kept_.size() > oldest) {
    kept_bytes_ -= kept_[oldest].size();
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(oldest));
    ++dropped_;
  }
}

void BufferedFile::note(int error) {
  error_ = error;
  if (std::exchange(warned_, true)) return;
  log_warn(
      "cannot write '{}': {}; the run goes on, keeps up to {} MiB of it in memory and tries again "
      "every second",
      path_,
      std::strerror(error),
      most_kept_bytes_ >> 20);
}

}  // namespace lockstep
