#pragma once
// The safetensors file format: an 8-byte little-endian header length, a JSON header, then the
// tensors' bytes without gaps. The reader is strict and its memory use is bounded, so that
// untrusted files can be opened safely. It reads with pread(), so that a failing disk or a
// truncated file is an error and not a signal. All errors are CheckpointError (malformed) or
// IoError (system call failed).

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/half.h"
#include "runtime/base/moment_block.h"

namespace lockstep::checkpoint {

constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  std::string dtype;            // as in the file: "F32", "BF16", "I64", ...
  std::vector<int64_t> shape;   // outermost first; empty for a scalar
  uint64_t begin = 0, end = 0;  // byte offsets from the end of the header
  int64_t elements = 0;         // product of shape
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // in the order of their data
  std::map<std::string, std::string> metadata;  // "__metadata__"
  uint64_t data_start = 0;                      // file offset of the first tensor byte
};

// Parses and checks the header of a file of `file_bytes` bytes. `prefix` has the file's first
// bytes: at least 8 + header length, or the entire file. Throws CheckpointError for: a header
// longer than kMaxSafetensorsHeaderBytes or than the file, malformed JSON or deeper nesting than
// the format has, duplicate or unknown keys, unknown dtypes, extents whose product overflows, sizes
// that do not match dtype and shape, and data with gaps, overlaps or trailing bytes. `origin` names
// the file in messages.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix,
                                           uint64_t file_bytes,
                                           const std::string& origin);

// A file opened for reading. Movable; safe to read from several threads.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }
  const SafetensorsHeader& header() const { return header_; }
  // XXH3-64 of the header with its length field: bytes [0, header().data_start).
  uint64_t header_checksum() const { return header_checksum_; }
  // Null if there is no such tensor.
  const SafetensorsEntry* find(const std::string& name) const;

  // Copies bytes [offset, offset + bytes) of the entry's data.
  void read_bytes(const SafetensorsEntry& entry, uint64_t offset, void* out, size_t bytes) const;
  // The entry's values as float; `out` is (entry.elements). F32 is copied; F16 and BF16 are
  // converted exactly. Throws CheckpointError for other dtypes, and if a value is NaN or infinite:
  // the check is part of the same pass over the values.
  void read_weights(const SafetensorsEntry& entry, float* out) const;

 private:
  std::string path_;
  std::unique_ptr<Descriptor> file_;  // so that this class can be moved
  uint64_t file_bytes_ = 0;
  SafetensorsHeader header_;
  uint64_t header_checksum_ = 0;
  std::unordered_map<std::string, size_t> index_;  // name to entry
};

// A tensor to write, of float or bfloat16 values, or of bytes. The caller keeps the values alive.
struct F32Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::span<const float> values;             // product of shape elements
  std::span<const BFloat16> halves = {};     // used if `values` is empty; stored unchanged
  std::span<const MomentBlock> blocks = {};  // used if neither has elements; stored as bytes
  size_t elements() const {
    if (!blocks.empty()) return blocks.size_bytes();
    return halves.empty() ? values.size() : halves.size();
  }
};

struct TensorRecord {
  std::string name;
  int64_t elements = 0;   // of the moment, if the file has it in blocks
  uint64_t checksum = 0;  // XXH3-64 of the tensor's bytes in the file
  bool operator==(const TensorRecord& other) const = default;
};

struct WrittenFile {
  uint64_t bytes = 0;
  uint64_t header_checksum = 0;       // as SafetensorsFile::header_checksum
  std::vector<TensorRecord> tensors;  // in the order of their data
};

// The dtype in which a file stores float values.
enum class FileDtype { kF32, kF16, kBf16 };

struct WriteOptions {
  bool durable = true;  // wait until the data are on disk
  // Borrowed. If this becomes true, writing ends soon with CheckpointError. Null: never.
  const std::atomic<bool>* cancelled = nullptr;
  FileDtype dtype = FileDtype::kF32;  // values are rounded to nearest, ties to even
};

// Writes tensors, sorted by name. The data begin at a multiple of 64 bytes in the file. Values are
// streamed, without a copy of a whole tensor. Throws IoError.
WrittenFile write_safetensors(const std::filesystem::path& path,
                              std::vector<F32Tensor> tensors,
                              const std::map<std::string, std::string>& metadata,
                              const WriteOptions& options = {});

}  // namespace lockstep::checkpoint
