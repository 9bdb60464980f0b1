#include "runtime/checkpoint/format/recorded_file.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/half.h"

namespace lockstep::checkpoint {
namespace {
constexpr size_t kChunkBytes = size_t{1} << 20;
}

std::string damaged(const SafetensorsFile& file, const SafetensorsEntry& entry) {
  const uint64_t start = file.header().data_start;
  return fmt::format("{}: tensor {} (bytes {} to {}) is damaged: its checksum differs",
                     file.path(),
                     quote_name(entry.name),
                     start + entry.begin,
                     start + entry.end);
}

SafetensorsFile open_recorded(const std::filesystem::path& folder, const FileRecord& record) {
  SafetensorsFile file(folder / record.name);
  if (file.file_bytes() != record.size) {
    throw CheckpointError(
        "{}: has {} bytes, but {} were written", file.path(), file.file_bytes(), record.size);
  }
  if (file.header_checksum() != record.header_checksum) {
    throw CheckpointError("{}: header (bytes 0 to {}) is damaged: its checksum differs",
                          file.path(),
                          file.header().data_start);
  }
  return file;
}

const SafetensorsEntry& entry_of(const SafetensorsFile& file, const TensorRecord& record) {
  const SafetensorsEntry* entry = file.find(record.name);
  const bool known = entry != nullptr && (entry->dtype == "F32" || entry->dtype == "BF16");
  if (!known || entry->elements != record.elements) {
    throw CheckpointError("{}: has no F32 or BF16 tensor {} of {} elements, but {} lists one",
                          file.path(),
                          quote_name(record.name),
                          record.elements,
                          kStateFile);
  }
  return *entry;
}

bool read_checked(const SafetensorsFile& file,
                  const SafetensorsEntry& entry,
                  uint64_t expected,
                  float* out) {
  Checksum checksum;
  const bool halves = entry.dtype == "BF16";  // converted to float
  std::vector<char> scratch(out == nullptr || halves ? kChunkBytes : 0);
  const uint64_t bytes = entry.end - entry.begin;
  for (uint64_t offset = 0; offset < bytes;) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, bytes - offset));
    char* target = scratch.empty() ? reinterpret_cast<char*>(out) + offset : scratch.data();
    file.read_bytes(entry, offset, target, part);
    checksum.update(target, part);
    for (size_t i = 0; halves && out != nullptr && i < part / sizeof(BFloat16); ++i) {
      BFloat16 value;
      std::memcpy(&value, target + i * sizeof(BFloat16), sizeof(value));
      *out++ = to_float(value);
    }
    offset += part;
  }
  return checksum.value() == expected;
}

}  // namespace lockstep::checkpoint
