#pragma once
// Arrays in NumPy's .npy files, which have a header with type and shape, and then the values.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

enum class NpyType { kBool, kUint8, kInt32, kInt64, kFloat32 };

struct NpyArray {
  NpyType type = NpyType::kUint8;
  std::vector<int64_t> extents;  // outermost first; one or more, all >= 1
  // (extents...) in C order, little-endian, not necessarily aligned; a part of the parsed bytes.
  std::span<const std::byte> values;

  int64_t count() const { return extents[0]; }
  // Elements per sample: the product of all extents but the first.
  int64_t row() const;
};

// "bool", "uint8", "float32".
const char* name_of(NpyType type);

// Parses a decompressed .npy file of version 1.0, 2.0 or 3.0. `name`: the file's, for messages.
// Throws DataError if the file is not a .npy file, if its header is not that of a plain array as
// NumPy writes it, if its type is not in NpyType or its order Fortran's, if an extent is zero, or
// if the file's length is not that of its header.
NpyArray parse_npy(std::span<const std::byte> bytes, const std::string& name);

}  // namespace lockstep::data
