#pragma once
// How metrics are written while training runs.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

// An append-only file of records behind a fixed buffer: writers format straight into it and no
// system call is made until 64 KiB are full, a second has passed since the last write, or flush().
// Never allocates after construction while the disk takes what is written.
//
// A run can do without such a file. If a write fails, because the disk is full or its server does
// not answer, a warning is logged once; the records stay in memory, and each later flush tries again,
// in their order. Beyond kMaxKeptBytes the oldest are dropped and counted. The file never has a part
// of a record: what was written of one is cut off again. Not thread-safe.
class BufferedFile {
 public:
  static constexpr size_t kMaxRecordBytes = 4096;
  static constexpr size_t kMaxKeptBytes = size_t{16} << 20;

  // Opens `path` for appending and creates it if needed. Throws IoError on what can never be
  // written, such as a link or a folder that is not there. `check` is called directly before each
  // write; if it throws, nothing is written.
  explicit BufferedFile(const std::filesystem::path& path,
                        std::function<void()> check = {},
                        size_t most_kept_bytes = kMaxKeptBytes);
  BufferedFile(const BufferedFile&) = delete;
  BufferedFile& operator=(const BufferedFile&) = delete;
  ~BufferedFile();  // finishes, but opens no file any more

  // Room for one record of up to kMaxRecordBytes; commit() says where the record ended.
  char* reserve() { return buffer_.get() + used_; }
  void commit(char* end);
  // Hands all records to the system (no fsync), or keeps them.
  void flush();
  // The last flush: logs how many records the file lacks, if any.
  void finish();

  // Records that are not in the file: kept, or dropped.
  uint64_t missing() const { return kept_.size() + dropped_; }

 private:
  void open();
  int check();
  int write_kept();
  int write_records(const char* data, const uint32_t* sizes, size_t count, size_t& whole);
  void keep_buffer(size_t written);
  void keep(const char* record, size_t bytes);
  void note(int error);
  void tell_missing();

  const std::string path_;
  const std::function<void()> check_;
  const size_t most_kept_bytes_;
  int descriptor_ = -1;
  std::unique_ptr<char[]> buffer_;
  size_t used_ = 0;
  std::vector<uint32_t> sizes_;  // of the records in the buffer
  double next_flush_ms_ = 0;

  std::deque<std::string> kept_;  // records that could not be written, the oldest first
  size_t kept_bytes_ = 0;
  size_t torn_bytes_ = 0;  // of the next record, that are in the file and cannot be cut off
  uint64_t dropped_ = 0;
  int error_ = 0;  // the last one
  bool warned_ = false, told_written_ = false, told_missing_ = false;
};

}  // namespace lockstep
