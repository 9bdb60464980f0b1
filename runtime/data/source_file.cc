#include "runtime/data/source_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/names.h"
#include "runtime/base/text.h"
#include "runtime/data/held_out.h"

namespace lockstep::data {

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

namespace {

constexpr std::string_view kMarkup[] = {"html", "xml", "svg"};

// Whether a file whose first bytes are those of a format is that format. Parquet and Arrow are
// marked at the end, too: a text may begin with "PAR1" by chance.
bool holds(const FileKind& kind, std::string_view bytes) {
  if (kind.id == "parquet") return bytes.ends_with("PAR1");
  if (kind.id == "arrow") return bytes.ends_with("ARROW1");
  return kind && kind.id != "utf16";  // see refuse_utf16()
}

void refuse(std::span<const std::byte> bytes, const std::string& name, bool markup_too) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const FileKind kind = file_kind(text);
  const bool markup = std::ranges::find(kMarkup, kind.id) != std::end(kMarkup);
  if (!holds(kind, text) || (markup && !markup_too)) return;
  throw DataError("{}: {}", name, is_not(text, "text, plain or .gz"));
}

}  // namespace

bool only_zeros(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte b) { return b == std::byte{0}; });
}

void refuse_other_formats(std::span<const std::byte> bytes, const std::string& name) {
  refuse(bytes, name, /*markup_too=*/false);
}

void refuse_other_than_table(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const FileKind kind = file_kind(text);
  const bool json = is_json(text.substr(0, kFileKindBytes));
  const std::string_view reader =
      json ? "pandas.read_json(sys.argv[1], lines=open(sys.argv[1]).read(1) != '[')" : kind.table;
  if (!reader.empty() && (json || holds(kind, text)))
    throw DataError("{}: is {}, not a table of text; {}",
                    name,
                    json ? "JSON" : kind.name,
                    conversion_of_table(reader, TableForm::kCsv));
  refuse(bytes, name, /*markup_too=*/true);
}

void refuse_utf16(std::string_view text, const std::string& name) {
  if (const std::string_view encoding = utf16_name(text); !encoding.empty())
    throw DataError(
        "{}: is UTF-16; allowed: UTF-8; to convert it: iconv -f {} -t UTF-8 FILE", name, encoding);
}

std::string_view text_in(std::span<const std::byte> bytes, const std::string& name, bool rows) {
  refuse(bytes, name, /*markup_too=*/rows);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  refuse_utf16(text, name);
  return without_byte_order_mark(text);
}

namespace {

constexpr uint64_t kLimitFactor = 64;
constexpr uint64_t kLimitBase = uint64_t{64} << 20;
constexpr size_t kScratchBytes = size_t{64} << 10;
constexpr size_t kMaxChunkBytes = size_t{1} << 30;  // zlib counts in 32 bits
constexpr int kGzipOnly = 16;                       // added to zlib's window bits: accept gzip only

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

// What to do about a file that is not there. A name that looks the same has its own remedy.
std::string missing_remedy(const std::string& dir, const std::string& path, const IoError& error) {
  const bool relative = std::filesystem::path(path).is_relative();
  const std::string name = (std::filesystem::path(dir) / path).string();
  if (error.error_number() != ENOENT || !relative || !same_looking_path(name).empty()) return "";
  if (dir.empty())
    return "; paths begin at the current folder: give the folder of the data with --data";
  return "; give the folder of the data with --data";
}

// Returns the buffer for the bytes that follow the first `written`.
using OutputBuffer = std::function<std::span<std::byte>(uint64_t written)>;

// Decompresses all members. Returns the number of bytes.
uint64_t inflate_all(std::span<const std::byte> compressed,
                     const std::string& name,
                     const OutputBuffer& buffer) {
  Inflater inflater(name);
  z_stream& stream = inflater.stream();
  size_t read = 0;
  uint64_t written = 0;
  while (true) {
    const std::span<std::byte> output = buffer(written);
    const size_t offered = std::min(compressed.size() - read, kMaxChunkBytes);
    const size_t wanted = std::min(output.size(), kMaxChunkBytes);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data() + read));
    stream.avail_in = static_cast<uInt>(offered);
    stream.next_out = reinterpret_cast<Bytef*>(output.data());
    stream.avail_out = static_cast<uInt>(wanted);
    const int status = inflate(&stream, Z_NO_FLUSH);
    const size_t produced = wanted - stream.avail_out;
    read += offered - stream.avail_in;
    written += produced;
    if (status == Z_STREAM_END) {
      const auto rest = compressed.subspan(read);
      if (only_zeros(rest)) return written;  // padding of tapes, which gzip ignores too
      if (!is_gzip(rest))
        throw DataError("{}: {} bytes of garbage after the gzip data", name, rest.size());
      inflateReset(&stream);
    } else if (status == Z_BUF_ERROR && read == compressed.size() && produced < wanted) {
      throw DataError("{}: the gzip data is truncated after {} bytes; copy or fetch the file again",
                      name,
                      compressed.size());
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      throw DataError("{}: corrupt gzip data at byte {}: {}",
                      name,
                      read,
                      stream.msg != nullptr ? stream.msg : zError(status));
    }
  }
}

// The number of decompressed bytes. Throws DataError if there are more than allowed.
uint64_t count_inflated(std::span<const std::byte> compressed,
                        const std::string& name,
                        const SizeByHeader& size) {
  const uint64_t limit = kLimitFactor * compressed.size() + kLimitBase;
  std::vector<std::byte> scratch(kScratchBytes);
  std::optional<uint64_t> promised;
  const auto check = [&](uint64_t written) {
    if (size && !promised && written > 0)
      promised = size(std::span(scratch).first(std::min<uint64_t>(written, kSizeHeaderBytes)));
    if (std::max(written, promised.value_or(0)) > limit)
      throw DataError(
          "{}: decompresses to more than {} bytes, the limit for a gzip file of {} bytes",
          name,
          limit,
          compressed.size());
    if (promised && written > *promised)
      throw DataError(
          "{}: too long: decompresses to more than the {} bytes that its header promises",
          name,
          *promised);
  };
  const uint64_t bytes = inflate_all(compressed, name, [&](uint64_t written) {
    // Collect the header, which may arrive in several pieces.
    if (size && written < kSizeHeaderBytes) return std::span(scratch).subspan(written);
    check(written);
    return std::span(scratch);
  });
  check(bytes);
  return bytes;
}

}  // namespace

std::vector<std::byte> gunzip(std::span<const std::byte> compressed,
                              const std::string& name,
                              const SizeByHeader& size) {
  const uint64_t bytes = count_inflated(compressed, name, size);
  std::vector<std::byte> output(bytes);
  std::byte beyond{};  // zlib needs room even if no byte is left
  inflate_all(compressed, name, [&](uint64_t written) {
    const auto rest = std::span(output).subspan(std::min(written, bytes));
    return rest.empty() ? std::span(&beyond, 1) : rest;
  });
  return output;
}

bool is_source_file(const std::string& dir, const std::string& path) {
  return is_file(std::filesystem::path(dir) / path);
}

SourceFile::SourceFile(const std::string& dir,
                       const std::string& path,
                       const std::string& field,
                       Gzip gzip,
                       const SizeByHeader& size) {
  if (path.empty()) throw DataError("data.{} is empty; give the path of a file", field);
  // operator/ keeps an absolute path as it is.
  name_ = (std::filesystem::path(dir) / path).string();
  try {
    mapped_ = MappedFile(name_, ExitCode::kData);
  } catch (const IoError& error) {
    throw DataError("data.{}: {}{}{}",
                    field,
                    error.what(),
                    missing_remedy(dir, path, error),
                    error.error_number() == ENOENT ? eval_remedy_for(field) : "");
  }
  if (mapped_.bytes().empty()) throw DataError("{}: the file is empty (data.{})", name_, field);
  if (gzip == Gzip::kDecompress && is_gzip(mapped_.bytes())) {
    heap_ = gunzip(mapped_.bytes(), name_, size);
    mapped_ = MappedFile();
    compressed_ = true;
    if (heap_.empty()) throw DataError("{}: decompresses to nothing (data.{})", name_, field);
  }
}

}  // namespace lockstep::data
