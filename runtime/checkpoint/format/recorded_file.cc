#include "runtime/checkpoint/format/recorded_file.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

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
  const bool blocks =
      entry != nullptr && has_blocks(*entry) && record.elements % kMomentBlock == 0 &&
      static_cast<uint64_t>(entry->elements) == moment_bytes(DType::kU8, record.elements);
  if (!blocks && (!known || entry->elements != record.elements)) {
    throw CheckpointError("{}: has no F32 or BF16 tensor {} of {} elements, but {} lists one",
                          file.path(),
                          quote_name(record.name),
                          record.elements,
                          kStateFile);
  }
  return *entry;
}

bool has_blocks(const SafetensorsEntry& entry) { return entry.dtype == "U8"; }

namespace {

// Calls f(bytes) for the tensor's bytes, part by part; a part is a multiple of `unit`. Returns
// whether their checksum is `expected`.
template <typename F>
bool for_each_part(const SafetensorsFile& file,
                   const SafetensorsEntry& entry,
                   uint64_t expected,
                   size_t unit,
                   F f) {
  Checksum checksum;
  const size_t part_bytes = kChunkBytes / unit * unit;
  std::vector<std::byte> scratch(part_bytes);
  const uint64_t bytes = entry.end - entry.begin;
  for (uint64_t offset = 0; offset < bytes;) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(part_bytes, bytes - offset));
    file.read_bytes(entry, offset, scratch.data(), part);
    checksum.update(scratch.data(), part);
    f(std::span<const std::byte>(scratch.data(), part));
    offset += part;
  }
  return checksum.value() == expected;
}

}  // namespace

bool read_checked(const SafetensorsFile& file,
                  const SafetensorsEntry& entry,
                  uint64_t expected,
                  float* out) {
  if (out == nullptr)
    return for_each_part(file, entry, expected, 1, [](std::span<const std::byte>) {});
  if (has_blocks(entry)) {
    const MomentMap& map =
        moment_map(is_moment_of_squares(entry.name.substr(0, entry.name.find('.'))));
    const auto decode = [&](std::span<const std::byte> part) {
      for (size_t at = 0; at < part.size(); at += sizeof(MomentBlock), out += kMomentBlock) {
        MomentBlock block;
        std::memcpy(&block, part.data() + at, sizeof(block));
        decode_moments(map, block, out);
      }
    };
    return for_each_part(file, entry, expected, sizeof(MomentBlock), decode);
  }
  if (entry.dtype == "BF16") {
    const auto widen = [&](std::span<const std::byte> part) {
      for (size_t at = 0; at < part.size(); at += sizeof(BFloat16)) {
        BFloat16 value;
        std::memcpy(&value, part.data() + at, sizeof(value));
        *out++ = to_float(value);
      }
    };
    return for_each_part(file, entry, expected, sizeof(BFloat16), widen);
  }
  Checksum checksum;
  const uint64_t bytes = entry.end - entry.begin;
  for (uint64_t offset = 0; offset < bytes;) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, bytes - offset));
    char* const target = reinterpret_cast<char*>(out) + offset;
    file.read_bytes(entry, offset, target, part);
    checksum.update(target, part);
    offset += part;
  }
  return checksum.value() == expected;
}

bool read_blocks_checked(const SafetensorsFile& file,
                         const SafetensorsEntry& entry,
                         uint64_t expected,
                         MomentBlock* out) {
  auto* to = reinterpret_cast<std::byte*>(out);
  return for_each_part(file, entry, expected, 1, [&](std::span<const std::byte> part) {
    to = std::ranges::copy(part, to).out;
  });
}

}  // namespace lockstep::checkpoint
