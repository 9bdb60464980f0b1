#pragma once
// How metrics are written while training runs.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

// An append-only file of records with a fixed buffer. Writers format straight into the buffer. It
// makes a system call only when 64 KiB are full, a second has passed since the last write, or at
// flush(). Never allocates after construction, as long as the disk accepts the data.
//
// A run can do without such a file. If a write fails, because the disk is full or its server does
// not answer, a warning is logged once. The records stay in memory, and each later flush tries
// again, in order. Beyond kMaxKeptBytes the oldest records are dropped and counted. The file never
// ends in part of a record: a partial one is truncated again. Not thread-safe.
class BufferedFile {
 public:
  static constexpr size_t kMaxRecordBytes = 4096;
  static constexpr size_t kMaxKeptBytes = size_t{16} << 20;

  // Opens `path` for appending and creates it if needed. Throws IoError if it can never be written,
  // because it is a link, for example, or its folder does not exist. `check` is called just before
  // each write; if it throws, nothing is written.
  explicit BufferedFile(const std::filesystem::path& path,
                        std::function<void()> check = {},
                        size_t max_kept_bytes = kMaxKeptBytes);
  BufferedFile(const BufferedFile&) = delete;
  BufferedFile& operator=(const BufferedFile&) = delete;
  ~BufferedFile();  // flushes, but does not reopen the file

  // Space for one record of up to kMaxRecordBytes. commit() takes the end of the record.
  char* reserve() { return buffer_.get() + used_; }
  void commit(char* end);
  // Writes a record that may be longer than kMaxRecordBytes, at once. Allocates.
  void add_long(std::string_view record);
  // Passes all records to the system (no fsync), or keeps them in memory.
  void flush();
  // The last flush. Logs the number of records that are missing from the file, if any.
  void finish();

  // Records that are not in the file: kept, or dropped.
  uint64_t missing() const { return kept_.size() + dropped_; }

 private:
  void open();
  int check();
  int write_kept();
  int write_records(const char* data, const uint32_t* sizes, size_t count, size_t& complete);
  void keep_buffer(size_t written);
  void keep(const char* record, size_t bytes);
  void note(int error);
  void report_missing();

  const std::string path_;
  const std::function<void()> check_;
  const size_t max_kept_bytes_;
  int descriptor_ = -1;
  std::unique_ptr<char[]> buffer_;
  size_t used_ = 0;
  std::vector<uint32_t> sizes_;  // of the records in the buffer
  double next_flush_ms_ = 0;

  std::deque<std::string> kept_;  // records that could not be written, the oldest first
  size_t kept_bytes_ = 0;
  size_t torn_bytes_ = 0;  // of the next record, already in the file and not truncated
  uint64_t dropped_ = 0;
  int error_ = 0;  // errno of the last write; 0: it succeeded
  bool warned_ = false, reported_written_ = false, reported_missing_ = false;
};

}  // namespace lockstep::metrics
