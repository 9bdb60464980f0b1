#include "runtime/data/images/record_file.h"

#include <xxhash.h>

#include <bit>
#include <cstring>
#include <fstream>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/file_kind.h"

namespace lockstep::data {
namespace {

static_assert(std::endian::native == std::endian::little, "record files are little-endian");

constexpr char kMagic[8] = {'L', 'K', 'S', 'T', 'P', 'R', 'E', 'C'};
constexpr uint32_t kVersion = 1;

struct Header {
  char magic[8] = {};
  uint32_t version = kVersion;
  uint32_t header_bytes = sizeof(Header);
  uint64_t records = 0;
  uint64_t classes = 0;
  uint64_t index_offset = 0;
  uint64_t names_bytes = 0;
  uint64_t file_bytes = 0;
  uint64_t index_checksum = 0;
  uint64_t header_checksum = 0;
  char zeros[56] = {};
};
static_assert(sizeof(Header) == 128);
constexpr size_t kCheckedBytes = 64;

uint64_t checksum_of_header(const Header& header) {
  return checksum_of(std::as_bytes(std::span(&header, 1)).first(kCheckedBytes));
}

std::string text_of_names(const std::vector<std::string>& names) {
  std::string text;
  for (std::string name : names) {
    for (char& c : name)
      if (c == '\n') c = ' ';
    text += name + "\n";
  }
  return text;
}

std::vector<std::string> names_of_text(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    names.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return names;
}

void check_entry(const RecordEntry& entry,
                 size_t number,
                 const Header& header,
                 const std::string& name) {
  if (entry.offset < sizeof(Header) || entry.offset > header.index_offset ||
      entry.bytes > header.index_offset - entry.offset)
    throw DataError("{}: record {} is outside the part of the file for records", name, number);
  if (entry.label < 0 || static_cast<uint64_t>(entry.label) >= header.classes)
    throw DataError("{}: record {} has class {}, which is not below {}, the number of classes",
                    name,
                    number,
                    entry.label,
                    header.classes);
  const bool pixels = entry.height > 0 || entry.width > 0;
  const uint64_t area = uint64_t{entry.height} * entry.width;
  if (entry.bytes == 0 || (pixels && (area > kMaxPixels || area * 3 != entry.bytes)))
    throw DataError("{}: record {} of {} x {} pixels has {} bytes",
                    name,
                    number,
                    entry.width,
                    entry.height,
                    entry.bytes);
}

}  // namespace

bool is_record_file(const std::string& path) {
  if (!is_file(path)) return false;  // reading from a pipe would block
  std::ifstream file(path, std::ios::binary);
  char magic[sizeof(kMagic)] = {};
  file.read(magic, sizeof(magic));
  return std::memcmp(magic, kMagic, sizeof(magic)) == 0;
}

uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

RecordIndex parse_record_file(std::span<const std::byte> file, const std::string& name) {
  Header header;
  if (file.size() < sizeof(header) || std::memcmp(file.data(), kMagic, sizeof(kMagic)) != 0)
    throw DataError("{}: {} (`lockstep data pack` writes record files)",
                    name,
                    is_not(file, "a record file", TableForm::kImages));
  std::memcpy(&header, file.data(), sizeof(header));
  if (checksum_of_header(header) != header.header_checksum)
    throw DataError("{}: the header is damaged: its checksum is wrong", name);
  if (header.version != kVersion || header.header_bytes != sizeof(header))
    throw DataError("{}: a record file of version {}; this Lockstep reads version {}",
                    name,
                    header.version,
                    kVersion);
  if (header.file_bytes != file.size())
    throw DataError("{}: {}: the header promises {} bytes, the file has {}",
                    name,
                    header.file_bytes > file.size() ? "truncated" : "too long",
                    header.file_bytes,
                    file.size());
  const uint64_t rest = file.size() - std::min<uint64_t>(header.index_offset, file.size());
  if (header.records == 0 || header.records > rest / sizeof(RecordEntry) ||
      header.names_bytes != rest - header.records * sizeof(RecordEntry) ||
      header.classes > kMaxClasses)
    throw DataError("{}: the header is damaged: {} records, {} classes, index at byte {}",
                    name,
                    header.records,
                    header.classes,
                    header.index_offset);
  if (checksum_of(file.subspan(header.index_offset)) != header.index_checksum)
    throw DataError("{}: the index is damaged: its checksum is wrong", name);
  RecordIndex index;
  index.classes = static_cast<int64_t>(header.classes);
  index.entries.resize(header.records);
  const std::byte* entries = file.data() + header.index_offset;
  std::memcpy(index.entries.data(), entries, header.records * sizeof(RecordEntry));
  for (size_t i = 0; i < index.entries.size(); ++i) check_entry(index.entries[i], i, header, name);
  index.class_names =
      names_of_text({reinterpret_cast<const char*>(file.data() + file.size() - header.names_bytes),
                     header.names_bytes});
  if (!index.class_names.empty() && index.class_names.size() != header.classes)
    throw DataError(
        "{}: has {} class names but {} classes", name, index.class_names.size(), header.classes);
  return index;
}

RecordWriter::RecordWriter(const std::filesystem::path& path) : file_(path) {
  const Header none;
  write(&none, sizeof(none));
}

void RecordWriter::write(const void* data, size_t bytes) {
  file_.write(data, bytes);
  position_ += bytes;
}

void RecordWriter::add(std::span<const std::byte> bytes, int32_t label, ImageSize size) {
  RecordEntry entry;
  entry.offset = position_;
  entry.bytes = static_cast<uint32_t>(bytes.size());
  entry.label = label;
  entry.height = static_cast<uint32_t>(size.height);
  entry.width = static_cast<uint32_t>(size.width);
  entry.checksum = checksum_of(bytes);
  write(bytes.data(), bytes.size());
  entries_.push_back(entry);
}

void RecordWriter::finish(int64_t classes, const std::vector<std::string>& class_names) {
  LOCKSTEP_CHECK(!entries_.empty());
  const std::string names = text_of_names(class_names);
  std::vector<std::byte> index(entries_.size() * sizeof(RecordEntry) + names.size());
  std::memcpy(index.data(), entries_.data(), entries_.size() * sizeof(RecordEntry));
  std::memcpy(index.data() + index.size() - names.size(), names.data(), names.size());
  Header header;
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.records = entries_.size();
  header.classes = static_cast<uint64_t>(classes);
  header.index_offset = position_;
  header.names_bytes = names.size();
  header.file_bytes = position_ + index.size();
  header.index_checksum = checksum_of(index);
  header.header_checksum = checksum_of_header(header);
  write(index.data(), index.size());
  file_.overwrite(&header, sizeof(header), 0);
  file_.finish();
}

}  // namespace lockstep::data
