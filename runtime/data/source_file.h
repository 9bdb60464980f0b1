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
#include "runtime/base/file_kind.h"

namespace lockstep::data {

// Whether `bytes` begins with the gzip magic bytes.
bool is_gzip(std::span<const std::byte> bytes);

// Whether there is a file of that name; see SourceFile.
bool is_source_file(const std::string& dir, const std::string& path);

bool only_zeros(std::span<const std::byte> bytes);

// Throws DataError if a file of text is in fact of another format, such as Parquet or zip. The
// message explains how to convert it. A web page or XML is text. `name`: the file's, for messages.
void refuse_other_formats(std::span<const std::byte> bytes, const std::string& name);

// Throws DataError if a file of a table (CSV) is of another format, JSON included. The message
// explains how to make a table of it.
void refuse_other_than_table(std::span<const std::byte> bytes, const std::string& name);

// Throws DataError if the text has the byte order mark of UTF-16. The message explains how to
// convert the file.
void refuse_utf16(std::string_view text, const std::string& name);

// The text of a UTF-8 file without its byte order mark, if it has one. Throws DataError if the file
// has another format or is UTF-16; if it has `rows`, also if it is a web page or XML.
std::string_view text_in(std::span<const std::byte> bytes,
                         const std::string& name,
                         bool rows = true);

// The size of a file in bytes according to its first bytes. Throws DataError if these are invalid.
using SizeByHeader = std::function<uint64_t(std::span<const std::byte> first)>;
// How many bytes a SizeByHeader receives; the whole file if that is shorter.
constexpr size_t kSizeHeaderBytes = kFileKindBytes;

// Decompresses all members of a gzip file. `name`: the file's, for messages. A first pass in a
// buffer of 64 KiB counts the bytes, so that a bad file cannot exhaust memory. Throws DataError if
// the input is corrupt or truncated, or if the output has more bytes than 64 times the compressed
// size plus 64 MiB, or than `size` returns.
std::vector<std::byte> gunzip(std::span<const std::byte> compressed,
                              const std::string& name,
                              const SizeByHeader& size = nullptr);

// A whole file in memory: mapped if plain, decompressed to the heap if its first bytes (not its
// name) are those of gzip. Movable; the bytes keep their address.
class SourceFile {
 public:
  // kNever is for formats whose plain files may begin like a gzip file.
  enum class Gzip { kDecompress, kNever };

  // `path` is relative to `dir` unless absolute. `field`: the config field that names the file, for
  // messages. `size`: see gunzip(). Throws DataError if the file cannot be read or is empty.
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

}  // namespace lockstep::data
