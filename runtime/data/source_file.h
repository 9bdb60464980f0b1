#pragma once
// The bytes of one data file, plain or gzip-compressed.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"

namespace lockstep {

// True when `bytes` begins with the gzip magic bytes.
bool is_gzip(std::span<const std::byte> bytes);

// Throws DataError, with a way to convert it, where a file of text is one of Parquet, Arrow or a kind of
// compression that is not read. `name`: the file's, for messages.
void refuse_other_formats(std::span<const std::byte> bytes, const std::string& name);

// Throws DataError, with a way to convert it, where a byte order mark says that a text is UTF-16.
void refuse_utf16(std::string_view text, const std::string& name);

// The text of a file, which is UTF-8, without the byte order mark that it may begin with. Throws
// DataError where it is of another format, or UTF-16.
std::string_view text_in(std::span<const std::byte> bytes, const std::string& name);

// The bytes of a whole file, as its first ones say. Throws DataError where they say nothing valid.
using SizeByHeader = std::function<uint64_t(std::span<const std::byte> first)>;
// What a SizeByHeader is given, or the whole file where that is shorter.
constexpr size_t kSizeHeaderBytes = 64;

// Decompresses all members of a gzip file. `name` is the file's name for messages. The bytes are
// counted before memory is taken for them. Throws DataError on corrupt or truncated input, and on
// more than 64 times the compressed size plus 64 MiB or, where `size` is given, than that says:
// until then 64 KiB are taken.
std::vector<std::byte> gunzip(std::span<const std::byte> compressed,
                              const std::string& name,
                              const SizeByHeader& size = nullptr);

// A whole file in memory: mapped when plain, on the heap when it was compressed (told by its first
// bytes, not by its name). Movable; the bytes stay in place.
class SourceFile {
 public:
  // Formats whose plain files may begin like a gzip file are never decompressed.
  enum class Gzip { kDecompress, kNever };

  // `path` relative to `dir` unless absolute or `dir` is empty; `field` is the config field that
  // names it, for messages; `size`: as of gunzip(). Throws DataError when it cannot be read or is
  // empty.
  SourceFile(const std::string& dir,
             const std::string& path,
             const std::string& field,
             Gzip gzip,
             const SizeByHeader& size = nullptr);

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
