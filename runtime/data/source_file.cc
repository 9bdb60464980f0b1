#include "runtime/data/source_file.h"

#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kLimitFactor = 64;
constexpr size_t kLimitBase = size_t{64} << 20;
constexpr size_t kLargestChunk = size_t{1} << 30;  // zlib counts in 32 bits
constexpr int kGzipOnly = 16;                      // added to the window bits

class Inflater {
 public:
  explicit Inflater(const std::string& name) {
    if (inflateInit2(&stream_, MAX_WBITS + kGzipOnly) != Z_OK)
      throw DataError("{}: zlib cannot start: out of memory", name);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }
  z_stream& stream() { return stream_; }

 private:
  z_stream stream_{};
};

bool only_zeros(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

std::vector<std::byte> gunzip(std::span<const std::byte> compressed, const std::string& name) {
  const size_t limit = kLimitFactor * compressed.size() + kLimitBase;
  Inflater inflater(name);
  z_stream& stream = inflater.stream();
  std::vector<std::byte> output(std::max<size_t>(4 * compressed.size(), 4096));
  size_t read = 0, written = 0;
  while (true) {
    if (written == output.size()) {
      if (written >= limit)
        throw DataError(
            "{}: decompresses to more than {} bytes, the limit for a gzip file of {} bytes",
            name,
            limit,
            compressed.size());
      output.resize(std::min(limit, 2 * written));
    }
    const size_t offered = std::min(compressed.size() - read, kLargestChunk);
    const size_t room = std::min(output.size() - written, kLargestChunk);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data() + read));
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = reinterpret_cast<Bytef*>(output.data() + written);
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    read += offered - stream.avail_in;
    written += room - stream.avail_out;
    if (status == Z_STREAM_END) {
      const auto rest = compressed.subspan(read);
      if (only_zeros(rest)) break;  // tape padding, which gzip ignores too
      if (!is_gzip(rest))
        throw DataError("{}: {} bytes of garbage after the gzip data", name, rest.size());
      inflateReset(&stream);
    } else if (status == Z_BUF_ERROR && read == compressed.size() && written < output.size()) {
      throw DataError("{}: the gzip data is truncated after {} bytes", name, compressed.size());
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      throw DataError("{}: corrupt gzip data at byte {}: {}",
                      name,
                      read,
                      stream.msg != nullptr ? stream.msg : zError(status));
    }
  }
  output.resize(written);
  output.shrink_to_fit();
  return output;
}

SourceFile::SourceFile(const std::string& dir,
                       const std::string& path,
                       const std::string& field,
                       Gzip gzip) {
  if (path.empty()) throw DataError("data.{} is empty; give the path of a file", field);
  // operator/ keeps an absolute path as it is.
  name_ = (std::filesystem::path(dir) / path).string();
  try {
    mapped_ = MappedFile(name_, ExitCode::kData);
  } catch (const IoError& error) {
    throw DataError("data.{}: {}", field, error.what());
  }
  if (mapped_.bytes().empty()) throw DataError("{}: the file is empty (data.{})", name_, field);
  if (gzip == Gzip::kDecompress && is_gzip(mapped_.bytes())) {
    heap_ = gunzip(mapped_.bytes(), name_);
    mapped_ = MappedFile();
    compressed_ = true;
    if (heap_.empty()) throw DataError("{}: decompresses to nothing (data.{})", name_, field);
  }
}

}  // namespace lockstep
