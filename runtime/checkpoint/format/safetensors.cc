#include "runtime/checkpoint/format/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "runtime/base/checksum.h"
#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/json.h"

namespace lockstep::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensor data is copied without byte swaps");

constexpr size_t kChunkBytes = size_t{1} << 20;  // stays in the cache between checksum and copy
constexpr uint64_t kDataAlignment = 64;

// Fills `out` from `offset` of the file, or throws.
void read_exactly(int fd, const std::string& path, uint64_t offset, void* out, size_t bytes) {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const size_t ask = std::min(bytes, size_t{1} << 30);
    const ssize_t got =
        uninterrupted([&] { return ::pread(fd, next, ask, static_cast<off_t>(offset)); });
    if (got < 0) throw IoError("read", path, errno);
    if (got == 0) throw CheckpointError("{}: ends at byte {}: it shrank while open", path, offset);
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

// Whether no value is NaN or infinite. Both have an exponent of all ones; adding its lowest bit
// carries into the sign bit. The blocks have a fixed length, so that compilers vectorise the loop
// even at low optimisation levels.
bool all_finite(const float* values, size_t count) {
  constexpr size_t kBlock = 1024;
  constexpr uint32_t kExponent = 0x7f800000u, kLowestOfExponent = 0x00800000u;
  uint32_t signs = 0;
  const auto check = [&](size_t i) {
    signs |= (std::bit_cast<uint32_t>(values[i]) & kExponent) + kLowestOfExponent;
  };
  size_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock)
    for (size_t i = 0; i < kBlock; ++i) check(begin + i);
  for (size_t i = begin; i < count; ++i) check(i);
  return signs >> 31 == 0;
}

const char* name_of(FileDtype dtype) {
  switch (dtype) {
    case FileDtype::kF32: return "F32";
    case FileDtype::kF16: return "F16";
    case FileDtype::kBf16: return "BF16";
  }
  return "";
}

size_t bytes_of(FileDtype dtype) { return dtype == FileDtype::kF32 ? 4 : 2; }

// The bytes of `values` as the file stores them. `words` holds them if the dtype is not F32.
std::span<const std::byte> as_stored(std::span<const float> values,
                                     FileDtype dtype,
                                     std::vector<uint16_t>& words) {
  if (dtype == FileDtype::kF32) return std::as_bytes(values);
  words.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    words[i] = dtype == FileDtype::kF16 ? round_to<Float16>(values[i]).bits
                                        : round_to<BFloat16>(values[i]).bits;
  return std::as_bytes(std::span<const uint16_t>(words));
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path.string()) {
  file_ = std::make_unique<Descriptor>(open_regular(path, file_bytes_));
  uint64_t length = 0;
  std::vector<std::byte> prefix(std::min<uint64_t>(file_bytes_, sizeof(length)));
  read_exactly(file_->fd, path_, 0, prefix.data(), prefix.size());
  if (prefix.size() == sizeof(length)) {
    std::memcpy(&length, prefix.data(), sizeof(length));
    // If this is no safetensors file, enough is read to recognise what it is.
    const uint64_t more = length <= kMaxSafetensorsHeaderBytes ? length : kFileKindBytes;
    prefix.resize(std::min(file_bytes_, sizeof(length) + more));
    read_exactly(file_->fd, path_, 0, prefix.data(), prefix.size());
  }
  header_ = parse_safetensors_header(prefix, file_bytes_, path_);
  header_checksum_ = checksum_of(prefix.data(), prefix.size());
  for (size_t i = 0; i < header_.entries.size(); ++i) index_[header_.entries[i].name] = i;
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.entries[found->second];
}

void SafetensorsFile::read_bytes(const SafetensorsEntry& entry,
                                 uint64_t offset,
                                 void* out,
                                 size_t bytes) const {
  LOCKSTEP_CHECK(offset <= entry.end - entry.begin && bytes <= entry.end - entry.begin - offset);
  read_exactly(file_->fd, path_, header_.data_start + entry.begin + offset, out, bytes);
}

void SafetensorsFile::read_weights(const SafetensorsEntry& entry, float* out) const {
  const bool is_f32 = entry.dtype == "F32", is_f16 = entry.dtype == "F16";
  if (!is_f32 && !is_f16 && entry.dtype != "BF16")
    throw CheckpointError("{}: tensor {} has dtype {}; expected: F32, F16 or BF16",
                          path_,
                          quote_name(entry.name),
                          entry.dtype);
  std::vector<uint16_t> words(is_f32 ? 0 : kChunkBytes / sizeof(uint16_t));
  const uint64_t bytes = entry.end - entry.begin;
  for (uint64_t offset = 0; offset < bytes;) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, bytes - offset));
    const size_t count = part / (is_f32 ? sizeof(float) : sizeof(uint16_t));
    read_bytes(entry, offset, is_f32 ? static_cast<void*>(out) : words.data(), part);
    if (!is_f32)
      for (size_t i = 0; i < count; ++i)
        out[i] = is_f16 ? to_float(Float16{words[i]}) : to_float(BFloat16{words[i]});
    if (!all_finite(out, count))
      throw CheckpointError(
          "{}: tensor {} has a value that is not finite", path_, quote_name(entry.name));
    out += count;
    offset += part;
  }
}

WrittenFile write_safetensors(const std::filesystem::path& path,
                              std::vector<F32Tensor> tensors,
                              const std::map<std::string, std::string>& metadata,
                              const WriteOptions& options) {
  std::ranges::sort(tensors, {}, &F32Tensor::name);
  Json header = Json::object();
  for (const auto& [key, value] : metadata) header["__metadata__"][key] = value;
  uint64_t position = 0;
  for (const F32Tensor& tensor : tensors) {
    int64_t elements = 1;
    for (int64_t extent : tensor.shape) elements *= extent;
    LOCKSTEP_CHECK(elements == static_cast<int64_t>(tensor.elements()), "{}", tensor.name);
    LOCKSTEP_CHECK(!header.contains(tensor.name), "two tensors named {}", tensor.name);
    const FileDtype dtype = tensor.halves.empty() ? options.dtype : FileDtype::kBf16;
    const bool in_blocks = !tensor.blocks.empty();
    const uint64_t end = position + tensor.elements() * (in_blocks ? 1 : bytes_of(dtype));
    header[tensor.name] = Json::object({{"dtype", in_blocks ? "U8" : name_of(dtype)},
                                        {"shape", tensor.shape},
                                        {"data_offsets", Json::array({position, end})}});
    position = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 8 + kDataAlignment - 1) / kDataAlignment * kDataAlignment - 8, ' ');
  const uint64_t length = text.size();
  std::string prefix(sizeof(length), '\0');
  std::memcpy(prefix.data(), &length, sizeof(length));
  prefix += text;

  WrittenFile written;
  written.bytes = prefix.size() + position;
  written.header_checksum = checksum_of(prefix.data(), prefix.size());
  FileWriter writer(path);
  writer.write(prefix);
  std::vector<uint16_t> words;
  for (const F32Tensor& tensor : tensors) {
    Checksum checksum;
    for (size_t at = 0; at < tensor.elements();) {
      if (options.cancelled != nullptr && options.cancelled->load(std::memory_order_relaxed))
        throw CheckpointError("{}: the run has ended while it was written", path.string());
      const size_t count = std::min(tensor.elements() - at, kChunkBytes / sizeof(float));
      const std::span<const std::byte> bytes =
          !tensor.blocks.empty() ? std::as_bytes(tensor.blocks).subspan(at, count)
          : tensor.halves.empty()
              ? as_stored(tensor.values.subspan(at, count), options.dtype, words)
              : std::as_bytes(tensor.halves.subspan(at, count));
      checksum.update(bytes.data(), bytes.size());
      writer.write(bytes.data(), bytes.size());
      at += count;
    }
    const size_t elements =
        tensor.blocks.empty() ? tensor.elements() : tensor.blocks.size() * kMomentBlock;
    written.tensors.push_back({tensor.name, static_cast<int64_t>(elements), checksum.value()});
  }
  options.durable ? writer.finish() : writer.close();
  return written;
}

}  // namespace lockstep::checkpoint
