#pragma once
// The bytes of one data file, plain or gzip-compressed.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"

namespace lockstep {

// True when `bytes` begins with the gzip magic bytes.
bool is_gzip(std::span<const std::byte> bytes);

// Decompresses all members of a gzip file. `name` is the file's name for messages. Output is
// limited to 64 times the compressed size plus 64 MiB, and memory follows what really comes out,
// whatever the file claims. Throws DataError on corrupt or truncated input and beyond that limit.
std::vector<std::byte> gunzip(std::span<const std::byte> compressed, const std::string& name);

// A whole file in memory: mapped when plain, on the heap when it was compressed (told by its first
// bytes, not by its name). Movable; the bytes stay in place.
class SourceFile {
 public:
  // Formats whose plain files may begin like a gzip file are never decompressed.
  enum class Gzip { kDecompress, kNever };

  // `path` relative to `dir` unless absolute or `dir` is empty; `field` is the config field that
  // names it, for messages. Throws DataError when it cannot be read or is empty.
  SourceFile(const std::string& dir, const std::string& path, const std::string& field, Gzip gzip);

  std::span<const std::byte> bytes() const {
    return compressed_ ? std::span(heap_) : mapped_.bytes();
  }
  const std::string& name() const { return name_; }  // the path that was opened

 private:
  std::string name_;
  bool compressed_ = false;
  MappedFile mapped_;
  std::vector<std::byte> heap_;
};

}  // namespace lockstep
