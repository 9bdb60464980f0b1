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

namespace lockstep::metrics {
namespace {
constexpr size_t kFullBytes = size_t{64} << 10;
constexpr size_t kMaxRecords = kFullBytes / 16;  // max records in the buffer
constexpr double kFlushMs = 1000;
}  // namespace

BufferedFile::BufferedFile(const std::filesystem::path& path,
                           std::function<void()> check,
                           size_t max_kept_bytes)
    : path_(path.string()),
      check_(std::move(check)),
      max_kept_bytes_(max_kept_bytes),
      buffer_(std::make_unique<char[]>(kFullBytes + kMaxRecordBytes)),
      next_flush_ms_(now_ms() + kFlushMs) {
  sizes_.reserve(kMaxRecords);
  try {
    open();
  } catch (const IoError& error) {
    if (!may_pass(error.error_number())) throw;
    note(error.error_number());
  }
}

BufferedFile::~BufferedFile() {
  try {
    // The folder may belong to another process by now, but an open file is still this one's.
    if (descriptor_ >= 0) flush();
    report_missing();
  } catch (const Error&) {
    // The file no longer belongs to this process. A destructor must not throw.
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

void BufferedFile::open() { descriptor_ = open_to_write(path_, O_WRONLY | O_CREAT | O_APPEND); }

void BufferedFile::commit(char* end) {
  const size_t bytes = static_cast<size_t>(end - reserve());
  LOCKSTEP_CHECK(bytes <= kMaxRecordBytes, "{}: a record of {} bytes", path_, bytes);
  used_ += bytes;
  sizes_.push_back(static_cast<uint32_t>(bytes));
  if (used_ >= kFullBytes || sizes_.size() == kMaxRecords || now_ms() >= next_flush_ms_) {
    if (error_ != 0 && now_ms() < next_flush_ms_)
      keep_buffer(0);  // do not try a full disk more than once a second
    else
      flush();
  }
}

void BufferedFile::add_long(std::string_view record) {
  flush();
  keep(record.data(), record.size());
  flush();
}

void BufferedFile::flush() {
  next_flush_ms_ = now_ms() + kFlushMs;
  int error = check();
  if (error == 0) error = write_kept();
  size_t complete = 0;  // records of the buffer that are in the file
  if (error == 0) error = write_records(buffer_.get(), sizes_.data(), sizes_.size(), complete);
  keep_buffer(complete);
  if (error != 0) return note(error);
  if (error_ == 0) return;
  error_ = 0;
  if (!std::exchange(reported_written_, true))
    log_info("'{}' can be written again{}",
             path_,
             dropped_ == 0 ? "; nothing is missing"
                           : fmt::format("; {} of its records were dropped", dropped_));
}

void BufferedFile::finish() {
  flush();
  report_missing();
}

void BufferedFile::report_missing() {
  if (missing() + sizes_.size() == 0 || std::exchange(reported_missing_, true)) return;
  log_warn("'{}': {} records are missing, because they could not be written: {}",
           path_,
           missing() + sizes_.size(),
           error_ == 0 ? "the limit of memory for them was reached" : std::strerror(error_));
}

// Returns the errno of an error that may pass, or 0 if the file may be written.
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

// Writes the kept records. Returns the errno, or 0 if none is left.
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
    size_t complete = 0;
    error = write_records(records.data(), sizes.data(), sizes.size(), complete);
    for (; complete > 0; --complete) {
      kept_bytes_ -= kept_.front().size();
      kept_.pop_front();
    }
  }
  return error;
}

// Appends consecutive records. Returns the errno or 0, and sets `complete` to the number of records
// that are in the file.
int BufferedFile::write_records(const char* data,
                                const uint32_t* sizes,
                                size_t count,
                                size_t& complete) {
  size_t bytes = 0, wrote = torn_bytes_;  // already written by an earlier call
  for (size_t i = 0; i < count; ++i) bytes += sizes[i];
  int error = 0;
  while (wrote < bytes && error == 0) {
    const ssize_t part =
        uninterrupted([&] { return ::write(descriptor_, data + wrote, bytes - wrote); });
    if (part > 0) wrote += static_cast<size_t>(part);
    if (part <= 0) error = part == 0 ? ENOSPC : errno;
  }
  for (complete = 0; complete < count && sizes[complete] <= wrote; ++complete)
    wrote -= sizes[complete];
  torn_bytes_ = wrote;
  struct stat status {};
  if (torn_bytes_ > 0 && ::fstat(descriptor_, &status) == 0 &&
      ::ftruncate(descriptor_, status.st_size - static_cast<off_t>(torn_bytes_)) == 0)
    torn_bytes_ = 0;
  if (error == ESTALE) ::close(std::exchange(descriptor_, -1));  // reopened at the next attempt
  return error;
}

// Empties the buffer. Its first `written` records are in the file; the others are kept in memory.
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
  // The first record stays if a part of it is in the file.
  const size_t oldest = torn_bytes_ > 0 ? 1 : 0;
  while (kept_bytes_ > max_kept_bytes_ && kept_.size() > oldest) {
    kept_bytes_ -= kept_[oldest].size();
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(oldest));
    ++dropped_;
  }
}

void BufferedFile::note(int error) {
  error_ = error;
  if (std::exchange(warned_, true)) return;
  log_warn(
      "cannot write '{}': {}; the run continues, keeps up to {} MiB of it in memory and tries "
      "again every second",
      path_,
      std::strerror(error),
      max_kept_bytes_ >> 20);
}

}  // namespace lockstep::metrics
