// The header parser: a SAX state machine. So nesting depth, duplicate keys and memory use are
// bounded for any input.

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file_kind.h"
#include "runtime/base/text.h"
#include "runtime/checkpoint/format/safetensors.h"

namespace lockstep::checkpoint {
namespace {

// With their bytes.
constexpr std::pair<std::string_view, uint64_t> kDTypes[] = {{"BOOL", 1},
                                                             {"U8", 1},
                                                             {"I8", 1},
                                                             {"F8_E5M2", 1},
                                                             {"F8_E4M3", 1},
                                                             {"I16", 2},
                                                             {"U16", 2},
                                                             {"F16", 2},
                                                             {"BF16", 2},
                                                             {"I32", 4},
                                                             {"U32", 4},
                                                             {"F32", 4},
                                                             {"I64", 8},
                                                             {"U64", 8},
                                                             {"F64", 8}};

// Grammar: { "__metadata__": {string: string}, NAME: {"dtype": string, "shape": [u..],
// "data_offsets": [u, u]} ... }
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderHandler(SafetensorsHeader& header, const std::string& origin)
      : header_(header), origin_(origin) {}

  bool start_object(size_t) override {
    switch (state_) {
      case State::kStart: state_ = State::kRoot; return true;
      case State::kName:
        fields_seen_ = 0;
        offsets_.clear();
        state_ = State::kTensor;
        return true;
      case State::kMetadataValue: state_ = State::kMetadata; return true;
      default: fail("an object where none is allowed");
    }
  }

  bool end_object() override {
    if (state_ == State::kTensor) finish_tensor();
    state_ = state_ == State::kRoot ? State::kEnd : State::kRoot;
    return true;
  }

  bool key(std::string& text) override {
    switch (state_) {
      case State::kRoot:
        if (text == "__metadata__") {
          if (std::exchange(metadata_seen_, true)) fail("two '__metadata__' objects");
          state_ = State::kMetadataValue;
          return true;
        }
        header_.entries.push_back({});
        header_.entries.back().name = text;
        state_ = State::kName;
        return true;
      case State::kMetadata:
        metadata_key_ = text;
        if (header_.metadata.count(text) != 0) fail("duplicate metadata key " + quote_name(text));
        return true;
      case State::kTensor:
        if (text == "dtype") return field(kDTypeField, State::kDType);
        if (text == "shape") return field(kShapeField, State::kShapeValue);
        if (text == "data_offsets") return field(kOffsetsField, State::kOffsetsValue);
        fail_tensor("has an unknown field " + quote_name(text));
      default: fail("a key where none is allowed");
    }
  }

  bool start_array(size_t) override {
    if (state_ == State::kShapeValue) {
      state_ = State::kShape;
    } else if (state_ == State::kOffsetsValue) {
      state_ = State::kOffsets;
    } else {
      fail("an array where none is allowed");
    }
    return true;
  }

  bool end_array() override {
    state_ = State::kTensor;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (state_ == State::kShape) {
      if (value > static_cast<uint64_t>(INT64_MAX)) fail_tensor("has an extent above 2^63");
      header_.entries.back().shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (state_ == State::kOffsets) {
      if (offsets_.size() == 2) fail_tensor("has more than two data_offsets");
      offsets_.push_back(value);
      return true;
    }
    fail("a number where none is allowed");
  }

  bool string(std::string& text) override {
    if (state_ == State::kDType) {
      header_.entries.back().dtype = text;
      state_ = State::kTensor;
      return true;
    }
    if (state_ == State::kMetadata) {
      header_.metadata[metadata_key_] = text;
      return true;
    }
    fail("a string where none is allowed");
  }

  bool null() override { fail("a null where none is allowed"); }
  bool boolean(bool) override { fail("a boolean where none is allowed"); }
  bool number_integer(int64_t) override { fail("a negative number where none is allowed"); }
  bool number_float(double, const std::string&) override {
    fail("a number that is not a 64-bit unsigned integer");
  }
  bool binary(nlohmann::json::binary_t&) override { fail("binary data where none are allowed"); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    fail("malformed JSON at header byte " + std::to_string(position));
  }

 private:
  enum class State {
    kStart,
    kRoot,
    kName,
    kTensor,
    kDType,
    kShapeValue,
    kShape,
    kOffsetsValue,
    kOffsets,
    kMetadataValue,
    kMetadata,
    kEnd
  };
  enum Field : unsigned { kDTypeField = 1, kShapeField = 2, kOffsetsField = 4 };

  [[noreturn]] void fail(const std::string& what) const {
    throw CheckpointError("{}: not a safetensors file: {}", origin_, what);
  }
  [[noreturn]] void fail_tensor(const std::string& what) const {
    throw CheckpointError(
        "{}: tensor {} {}", origin_, quote_name(header_.entries.back().name), what);
  }

  bool field(Field which, State next) {
    if ((fields_seen_ & which) != 0) fail_tensor("has a field twice");
    fields_seen_ |= which;
    state_ = next;
    return true;
  }

  // Checks what can be checked for one tensor alone: fields, dtype, overflow, and that its size
  // matches dtype and shape.
  void finish_tensor() {
    if (fields_seen_ != (kDTypeField | kShapeField | kOffsetsField)) {
      fail_tensor("lacks one of dtype, shape and data_offsets");
    }
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) fail_tensor("has bad data_offsets");
    SafetensorsEntry& entry = header_.entries.back();
    entry.begin = offsets_[0];
    entry.end = offsets_[1];
    const auto* dtype =
        std::ranges::find(kDTypes, entry.dtype, &std::pair<std::string_view, uint64_t>::first);
    if (dtype == std::end(kDTypes)) fail_tensor("has the unknown dtype " + quote_name(entry.dtype));
    int64_t elements = 1, bytes = 0;
    for (int64_t extent : entry.shape) {
      if (__builtin_mul_overflow(elements, extent, &elements)) fail_tensor("is too large");
    }
    if (__builtin_mul_overflow(elements, static_cast<int64_t>(dtype->second), &bytes)) {
      fail_tensor("is too large");
    }
    if (static_cast<uint64_t>(bytes) != entry.end - entry.begin) {
      fail_tensor(fmt::format("has {} bytes of data, but {} of its shape needs {}",
                              entry.end - entry.begin,
                              entry.dtype,
                              bytes));
    }
    entry.elements = elements;
  }

  SafetensorsHeader& header_;
  const std::string& origin_;
  State state_ = State::kStart;
  unsigned fields_seen_ = 0;
  bool metadata_seen_ = false;
  std::vector<uint64_t> offsets_;
  std::string metadata_key_;
};

void check_names(const SafetensorsHeader& header, const std::string& origin) {
  std::vector<std::string_view> names;
  names.reserve(header.entries.size());
  for (const SafetensorsEntry& entry : header.entries) names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end())
    throw CheckpointError("{}: not a safetensors file: duplicate tensor name {}",
                          origin,
                          quote_name(std::string(*twice)));
}

// Checks that the tensors together fill the rest of the file exactly, without gaps or overlaps.
void check_tiling(SafetensorsHeader& header, uint64_t data_bytes, const std::string& origin) {
  std::ranges::sort(
      header.entries, {}, [](const auto& entry) { return std::pair(entry.begin, entry.end); });
  uint64_t position = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.begin != position) {
      throw CheckpointError("{}: tensor {} begins at data byte {}, but {} was expected: {}",
                            origin,
                            quote_name(entry.name),
                            entry.begin,
                            position,
                            entry.begin < position ? "tensors overlap" : "there is a gap");
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    throw CheckpointError("{}: has {} bytes of tensor data, but its header needs {}: {}",
                          origin,
                          data_bytes,
                          position,
                          data_bytes < position ? "the file is truncated" : "bytes to spare");
  }
}

}  // namespace

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> prefix,
                                           uint64_t file_bytes,
                                           const std::string& origin) {
  uint64_t length = 0;
  if (file_bytes < sizeof(length) || prefix.size() < sizeof(length)) {
    throw CheckpointError("{}: not a safetensors file: only {} bytes long", origin, file_bytes);
  }
  const std::string_view begin(reinterpret_cast<const char*>(prefix.data()), prefix.size());
  // Throws if the file is known as something else. A header that is valid needs no such look: its
  // length may be the first bytes of another format.
  const auto refuse_other_formats = [&] {
    const FileKind kind = file_kind(begin);
    if (kind ? kind.id != "safetensors" && kind.id != "zeros" : is_text(begin))
      throw CheckpointError("{}: {}", origin, is_not(begin, "a safetensors file"));
  };
  std::memcpy(&length, prefix.data(), sizeof(length));
  if (length > kMaxSafetensorsHeaderBytes || length > file_bytes - sizeof(length)) {
    refuse_other_formats();
    throw CheckpointError(
        "{}: not a safetensors file, or truncated: its header claims {} bytes, the file has {} and "
        "at most {} are allowed",
        origin,
        length,
        file_bytes,
        kMaxSafetensorsHeaderBytes);
  }
  LOCKSTEP_CHECK(prefix.size() - sizeof(length) >= length);
  const char* json = reinterpret_cast<const char*>(prefix.data()) + sizeof(length);
  if (length == 0 || json[0] != '{') {
    refuse_other_formats();
    throw CheckpointError("{}: not a safetensors file: its header does not begin with '{{'",
                          origin);
  }
  SafetensorsHeader header;
  HeaderHandler handler(header, origin);
  nlohmann::json::sax_parse(json, json + length, &handler);
  header.data_start = sizeof(length) + length;
  check_names(header, origin);
  check_tiling(header, file_bytes - header.data_start, origin);
  return header;
}

}  // namespace lockstep::checkpoint
