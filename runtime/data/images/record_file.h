#pragma once
// Packed record files: many images in one file, with an index, read through a memory map.
//
// Little-endian. A header of 128 bytes, the images, the index of 32 bytes per record, and the
// classes' names, one per line:
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

namespace lockstep {

// An entry of the index.
struct RecordEntry {
  uint64_t offset = 0;  // from the beginning of the file
  uint32_t bytes = 0;
  int32_t label = 0;
  uint32_t height = 0;  // of pixels (height, width, 3) u8; both 0: a JPEG or PNG file
  uint32_t width = 0;
  uint64_t checksum = 0;  // XXH3-64 of the image's bytes
};
static_assert(sizeof(RecordEntry) == 32);

// A record file, as parsed.
struct RecordIndex {
  std::vector<RecordEntry> entries;
  int64_t classes = 0;
  std::vector<std::string> class_names;  // (classes), or empty
};

// Whether the file at `path` begins as a record file does.
bool is_record_file(const std::string& path);

// XXH3-64.
uint64_t checksum_of(std::span<const std::byte> bytes);

// Parses header and index of the record file `file`, and checks that every record lies within it
// and has a label below the number of classes. The images are not read. `name` is for messages.
// Throws DataError.
RecordIndex parse_record_file(std::span<const std::byte> file, const std::string& name);

// Writes a record file, which is none before finish(): write it within replace_file(). Throws
// IoError.
class RecordWriter {
 public:
  explicit RecordWriter(const std::filesystem::path& path);

  // Appends pixels (size.height, size.width, 3), or with a size of 0 a JPEG or PNG file.
  void add(std::span<const std::byte> bytes, int32_t label, ImageSize size);

  // `class_names` is empty or one per class. At least one record.
  void finish(int64_t classes, const std::vector<std::string>& class_names);

  int64_t records() const { return static_cast<int64_t>(entries_.size()); }
  uint64_t bytes() const { return position_; }

 private:
  void write(const void* data, size_t bytes);

  FileWriter file_;
  uint64_t position_ = 0;
  std::vector<RecordEntry> entries_;
};

}  // namespace lockstep
