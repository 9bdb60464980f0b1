#pragma once
// Packed record files: many images in one file, with an index, read through a memory map.
//
// The file has a header of 128 bytes, the images, an index with 32 bytes per record, and the names
// of the classes, one per line. Numbers are little-endian. The header, by byte offset:
//   0 "LKSTPREC"  8 version u32 = 1  12 header bytes u32 = 128  16 records u64  24 classes u64
//   32 offset of the index u64  40 bytes of the names u64  48 bytes of the file u64
//   56 XXH3-64 of index and names u64  64 XXH3-64 of the 64 bytes before u64  72 zeros

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/data/images/image.h"

namespace lockstep::data {

// An entry of the index.
struct RecordEntry {
  uint64_t offset = 0;  // from the beginning of the file
  uint32_t bytes = 0;
  int32_t label = 0;
  uint32_t height = 0;  // of pixels (height, width, 3) u8; both 0 for a JPEG or PNG file
  uint32_t width = 0;
  uint64_t checksum = 0;  // XXH3-64 of the image's bytes
};
static_assert(sizeof(RecordEntry) == 32);

// The parsed index of a record file.
struct RecordIndex {
  std::vector<RecordEntry> entries;
  int64_t classes = 0;
  std::vector<std::string> class_names;  // (classes), or empty
};

// Whether the file at `path` begins like a record file.
bool is_record_file(const std::string& path);

// The XXH3-64 of the bytes.
uint64_t checksum_of(std::span<const std::byte> bytes);

// Parses the header and index of the record file `file`. Checks that every record is inside the
// file and has a label below the number of classes. The images are not read. `name`: for messages.
// Throws DataError.
RecordIndex parse_record_file(std::span<const std::byte> file, const std::string& name);

// Writes a record file. The file is invalid until finish(), so write it within replace_file().
// Throws IoError.
class RecordWriter {
 public:
  explicit RecordWriter(const std::filesystem::path& path);

  // Appends pixels (size.height, size.width, 3), or a JPEG or PNG file if `size` is 0.
  void add(std::span<const std::byte> bytes, int32_t label, ImageSize size);

  // Needs at least one record. `class_names`: empty, or one per class.
  void finish(int64_t classes, const std::vector<std::string>& class_names);

  int64_t records() const { return static_cast<int64_t>(entries_.size()); }
  uint64_t bytes() const { return position_; }

 private:
  void write(const void* data, size_t bytes);

  FileWriter file_;
  uint64_t position_ = 0;
  std::vector<RecordEntry> entries_;
};

}  // namespace lockstep::data
