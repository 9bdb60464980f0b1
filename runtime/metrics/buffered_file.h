#pragma once
// How metrics are written while training runs.

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>

namespace lockstep {

// An append-only file behind a fixed buffer: writers format straight into it and no system call is
// made until 64 KiB are full, a second has passed since the last write, or flush(). Never allocates
// after construction. Throws IoError; bytes whose write failed are dropped. Not thread-safe.
class BufferedFile {
 public:
  static constexpr size_t kMaxRecordBytes = 4096;

  // Opens `path` for appending and creates it where needed.
  explicit BufferedFile(const std::filesystem::path& path);
  BufferedFile(const BufferedFile&) = delete;
  BufferedFile& operator=(const BufferedFile&) = delete;
  ~BufferedFile();  // flushes; errors are lost, so call flush() before where they matter

  // Room for one record of up to kMaxRecordBytes; commit() says where the record ended.
  char* reserve() { return buffer_.get() + used_; }
  void commit(char* end);
  // Hands all bytes to the system (no fsync).
  void flush();

 private:
  std::string path_;
  int descriptor_ = -1;
  size_t used_ = 0;
  double next_flush_ms_ = 0;
  std::unique_ptr<char[]> buffer_;
};

}  // namespace lockstep
