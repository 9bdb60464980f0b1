#include "runtime/metrics/buffered_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/time.h"

namespace lockstep {
namespace {
constexpr size_t kFullBytes = size_t{64} << 10;
constexpr double kFlushMs = 1000;
}  // namespace

BufferedFile::BufferedFile(const std::filesystem::path& path)
    : path_(path.string()),
      next_flush_ms_(now_ms() + kFlushMs),
      buffer_(std::make_unique<char[]>(kFullBytes + kMaxRecordBytes)) {
  descriptor_ = uninterrupted(
      [&] { return ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644); });
  if (descriptor_ < 0) throw IoError("open", path_, errno);
}

BufferedFile::~BufferedFile() {
  try {
    flush();
  } catch (const IoError&) {
    // A destructor does not throw; flush() has reported the error to whoever asked.
  }
  ::close(descriptor_);
}

void BufferedFile::commit(char* end) {
  const size_t bytes = static_cast<size_t>(end - reserve());
  LOCKSTEP_CHECK(bytes <= kMaxRecordBytes, "{}: a record of {} bytes", path_, bytes);
  used_ += bytes;
  if (used_ >= kFullBytes || now_ms() >= next_flush_ms_) flush();
}

void BufferedFile::flush() {
  const char* next = buffer_.get();
  size_t left = std::exchange(used_, 0);
  next_flush_ms_ = now_ms() + kFlushMs;
  while (left > 0) {
    const ssize_t wrote = uninterrupted([&] { return ::write(descriptor_, next, left); });
    if (wrote < 0) throw IoError("write", path_, errno);
    next += wrote;
    left -= static_cast<size_t>(wrote);
  }
}

}  // namespace lockstep
