#pragma once
// An open .npy file and its array.

#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/data/images/npy_array.h"
#include "runtime/data/source_file.h"

namespace lockstep::data {

// The array points into the file, whose bytes keep their address if it is moved.
struct NpyFile {
  NpyFile(const std::string& dir, const std::string& path, const std::string& field)
      : file(dir, path, field, SourceFile::Gzip::kDecompress),
        array(parse_npy(file.bytes(), file.name())) {}
  bool has_images() const { return array.type == NpyType::kUint8; }
  int64_t bytes() const { return static_cast<int64_t>(file.bytes().size()); }

  SourceFile file;
  NpyArray array;
};

template <typename Value>
Value value_at(const NpyArray& array, int64_t index) {
  Value value;
  std::memcpy(&value, array.values.data() + index * int64_t{sizeof(Value)}, sizeof(Value));
  return value;
}

}  // namespace lockstep::data
